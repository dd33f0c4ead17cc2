/* A fake of NVIDIA's management library for the tests. It answers as one host with two H200 did; FAKE_NVML says how it
 * fails: "mismatch" (library and driver differ), "lost" (the second GPU is gone), "hang" (a driver that never returns),
 * "crash", "foreign" (a process of somebody else), "neighbour" (one on another GPU only), "full" (the one that asks holds
 * most of the memory), "hot" (heat holds the clocks down), "old" (a driver without the newer functions), "refuses"
 * (nothing can be set), "apart" (the second GPU has not joined the fabric). What is set is kept in the folder
 * FAKE_NVML_STATE, a file for each value, as a driver keeps it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u;
typedef struct { int index; } device;
static device devices[2] = {{0}, {1}};
enum {
    OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_PERMITTED = 4, TOO_SMALL = 7, MISSING = 13, LOST = 15, MISMATCH = 18,
    UNKNOWN = 999
};

static int mode(const char *name) {
    const char *set = getenv("FAKE_NVML");
    return set && !strcmp(set, name);
}
/* A value that can be set: read it, or set it where `set` is not negative. Unset values are `otherwise`. */
static long kept(const device *d, const char *what, long otherwise, long set) {
    const char *folder = getenv("FAKE_NVML_STATE");
    char path[512];
    if (!folder) return otherwise;
    snprintf(path, sizeof path, "%s/%s-%d", folder, what, d->index);
    FILE *file = fopen(path, set < 0 ? "r" : "w");
    if (!file) return otherwise;
    if (set >= 0) fprintf(file, "%ld\n", set);
    else if (fscanf(file, "%ld", &otherwise) != 1) otherwise = -1;
    fclose(file);
    return otherwise;
}
static int say(char *out, u size, const char *text) { snprintf(out, size, "%s", text); return OK; }

int nvmlInitWithFlags(u flags) {
    (void)flags;
    if (mode("mismatch")) return MISMATCH;
    if (mode("crash")) abort();
    while (mode("hang")) pause();
    return OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case INVALID: return "Invalid Argument";
    case UNSUPPORTED: return "Not Supported";
    case NOT_PERMITTED: return "Insufficient Permissions";
    case MISSING: return "Function Not Found";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *out, u size) { return say(out, size, "580.159.04"); }
int nvmlSystemGetNVMLVersion(char *out, u size) { return say(out, size, "13.580.159.04"); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 13000; return OK; }
int nvmlSystemGetConfComputeState(u *out) {
    if (mode("old")) return MISSING;
    out[0] = 2; out[1] = 1; out[2] = 0;
    return OK;
}
int nvmlDeviceGetCount_v2(u *out) { *out = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u index, device **out) {
    if (index == 1 && mode("lost")) return LOST;
    *out = &devices[index];
    return OK;
}
typedef struct { char legacy[16]; u domain, bus, device, id, subsystem; char bus_id[32]; } pci;
int nvmlDeviceGetPciInfo_v3(device *d, pci *out) {
    memset(out, 0, sizeof *out);
    out->device = 6 + d->index;
    out->id = 0x233510DE;
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:00:%02X.0", 6 + d->index);
    return OK;
}

#define TEXT(name, text) int name(device *d, char *out, u size) { (void)d; return say(out, size, text); }
TEXT(nvmlDeviceGetName, "NVIDIA H200")
TEXT(nvmlDeviceGetBoardPartNumber, "692-2G520-0282-001")
TEXT(nvmlDeviceGetVbiosVersion, "96.00.A5.00.1A")
TEXT(nvmlDeviceGetInforomImageVersion, "G520.0282.02.02")
int nvmlDeviceGetSerial(device *d, char *out, u size) { return snprintf(out, size, "100000000000%d", d->index + 1) < 0; }
int nvmlDeviceGetUUID(device *d, char *out, u size) {
    return snprintf(out, size, "GPU-00000000-1111-2222-3333-44444444444%d", d->index) < 0;
}
int nvmlDeviceGetGspFirmwareVersion(device *d, char *out) { (void)d; strcpy(out, "580.159.04"); return OK; }

#define NUMBER(name, value) int name(device *d, u *out) { (void)d; *out = value; return OK; }
#define FAILS(name, code) int name(device *d, u *out) { (void)d; (void)out; return code; }
NUMBER(nvmlDeviceGetNumGpuCores, 16896)
NUMBER(nvmlDeviceGetMemoryBusWidth, 6016)
NUMBER(nvmlDeviceGetPerformanceState, 0)
int nvmlDeviceGetPowerManagementLimit(device *d, u *out) { *out = kept(d, "power", 700000, -1); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device *d, u *out) { *out = kept(d, "power", 700000, -1); return OK; }
int nvmlDeviceGetPersistenceMode(device *d, u *out) { *out = kept(d, "persistence", 1, -1); return OK; }
static int set(device *d, const char *what, long value) {
    if (mode("refuses")) return NOT_PERMITTED;
    kept(d, what, 0, value);
    return OK;
}
int nvmlDeviceSetPowerManagementLimit(device *d, u value) {
    return value < 200000 || value > 700000 ? INVALID : set(d, "power", value);
}
int nvmlDeviceSetPersistenceMode(device *d, u value) { return set(d, "persistence", value); }
int nvmlDeviceSetGpuLockedClocks(device *d, u low, u high) {
    int failed = set(d, "low", low);
    return failed ? failed : set(d, "high", high);
}
int nvmlDeviceResetGpuLockedClocks(device *d) { return nvmlDeviceSetGpuLockedClocks(d, 345, 1980); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device **out) {
    u domain, number, slot;
    if (sscanf(bus, "%x:%x:%x", &domain, &number, &slot) != 3 || slot < 6 || slot > 7) return INVALID;
    *out = &devices[slot - 6];
    return slot == 7 && mode("lost") ? LOST : OK;
}
typedef struct { u version; unsigned char cluster[16]; u status, clique, state, health; } fabric;
int nvmlDeviceGetGpuFabricInfoV(device *d, fabric *out) {
    if (mode("old")) return MISSING;
    if (out->version != 0x02000024) return INVALID;
    int apart = d->index == 1 && mode("apart");
    out->status = 0;
    out->state = apart ? 2 : 3;
    out->health = apart ? 0x2 | 1 << 4 : 0x2 | 2 << 4; /* no degraded bandwidth; an unhealthy route, or none */
    return OK;
}
NUMBER(nvmlDeviceGetPowerUsage, 80075)
NUMBER(nvmlDeviceGetComputeMode, 0)
NUMBER(nvmlDeviceGetVirtualizationMode, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, 1)
int nvmlDeviceGetPowerManagementDefaultLimit(device *d, u *out) {
    (void)d;
    *out = 700000;
    return mode("old") ? UNKNOWN : OK;
}

#define PAIR(name, a, b) int name(device *d, u *x, u *y) { (void)d; *x = a; *y = b; return OK; }
PAIR(nvmlDeviceGetEccMode, 1, 1)
PAIR(nvmlDeviceGetMigMode, 0, 0)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, 200000, 700000)
PAIR(nvmlDeviceGetCudaComputeCapability, 9, 0)

typedef struct { unsigned long long total, free, used; } memory;
int nvmlDeviceGetMemoryInfo(device *d, memory *out) {
    (void)d;
    unsigned long long used = mode("full") ? 140000000000ULL : 644939776ULL;
    *out = (memory){150754820096ULL, 150754820096ULL - used, used};
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(device *d, memory *out) {
    (void)d;
    *out = (memory){274877906944ULL, 274876203008ULL, 1703936ULL};
    return OK;
}
int nvmlDeviceGetClockInfo(device *d, u kind, u *out) { (void)d; *out = kind == 2 ? 3201 : 345; return OK; }
int nvmlDeviceGetMaxClockInfo(device *d, u kind, u *out) { (void)d; *out = kind == 2 ? 3201 : 1980; return OK; }
int nvmlDeviceGetApplicationsClock(device *d, u kind, u *out) { (void)d; (void)kind; (void)out; return UNSUPPORTED; }
typedef struct { u version; char text[2048]; } frequencies;
int nvmlDeviceGetCurrentClockFreqs(device *d, frequencies *out) {
    if (mode("old")) return MISSING;
    if (out->version != (sizeof *out | 1 << 24)) return INVALID;
    snprintf(out->text, sizeof out->text, "nvclock=345, nvclockmin=%ld, nvclockmax=%ld, nvclockeditable=0, "
             "memclock=3201, memclockmin=3201, memclockmax=3201, memclockeditable=0",
             kept(d, "low", 345, -1), kept(d, "high", 1980, -1));
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *out) {
    (void)d;
    *out = mode("hot") ? 0x60 : 1;
    return mode("old") ? MISSING : OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *out) { (void)d; *out = 0x84; return OK; }
int nvmlDeviceGetTemperature(device *d, int sensor, u *out) { (void)d; (void)sensor; *out = 35; return OK; }
typedef struct { u gpu, memory; } utilization;
int nvmlDeviceGetUtilizationRates(device *d, utilization *out) { (void)d; *out = (utilization){0, 0}; return OK; }
int nvmlDeviceGetTotalEccErrors(device *d, int kind, int counter, unsigned long long *out) {
    (void)d; (void)kind; (void)counter;
    *out = 0;
    return OK;
}
int nvmlDeviceGetRemappedRows(device *d, u *a, u *b, u *c, u *e) { (void)d; *a = *b = *c = *e = 0; return OK; }
int nvmlDeviceGetNvLinkState(device *d, u link, u *out) { (void)d; *out = 1; return link < 18 ? OK : INVALID; }
int nvmlDeviceGetNvLinkVersion(device *d, u link, u *out) { (void)d; (void)link; *out = 7; return OK; }
int nvmlDeviceGetNvLinkErrorCounter(device *d, u link, u counter, unsigned long long *out) {
    (void)d; (void)link; (void)counter; (void)out;
    return UNSUPPORTED;
}
typedef struct { u pid; unsigned long long used; u instance, compute; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, u *count, process *out) {
    u room = *count;
    *count = mode("foreign") || mode("neighbour") || mode("full");
    if (*count > room) return TOO_SMALL;
    unsigned long long used = mode("full") ? 139000000000ULL : 1 << 30;
    if (*count) out[0] = (process){(u)getppid() + (mode("neighbour") ? d->index : 0), used, 0, 0};
    return OK;
}
FAILS(nvmlDeviceGetGraphicsRunningProcesses_v3, UNSUPPORTED)
int nvmlDeviceGetTopologyCommonAncestor(device *a, device *b, u *out) { (void)a; (void)b; *out = 30; return OK; }
int nvmlDeviceGetP2PStatus(device *a, device *b, u kind, u *out) {
    (void)a; (void)b;
    *out = 0;
    return kind <= 3 ? OK : INVALID;
}
