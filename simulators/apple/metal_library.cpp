// The library Metal: its C functions, over the simulated runtime, with which every object is made. Loading it brings the classes of
// Metal and Foundation.
extern "C" {

using Id = void*;

void sim_metal_load();
Id sim_metal_default_device();
Id sim_metal_all_devices();
bool sim_metal_call(const char* name);
bool sim_metal_hidden(const char* name);

#define METAL_EXPORT __attribute__((visibility("default")))

METAL_EXPORT int metal_is_simulator() { return 1; }

static Id default_device() {
  return sim_metal_call("MTLCreateSystemDefaultDevice") ? sim_metal_default_device() : nullptr;
}
static Id all_devices() { return sim_metal_call("MTLCopyAllDevices") ? sim_metal_all_devices() : nullptr; }

// dlsym() does not find what SIM_FAULT hides.
[[maybe_unused]] static Id (*resolve_default_device())() {
  return sim_metal_hidden("MTLCreateSystemDefaultDevice") ? nullptr : &default_device;
}
[[maybe_unused]] static Id (*resolve_all_devices())() {
  return sim_metal_hidden("MTLCopyAllDevices") ? nullptr : &all_devices;
}
METAL_EXPORT __attribute__((ifunc("resolve_default_device"))) Id MTLCreateSystemDefaultDevice();
METAL_EXPORT __attribute__((ifunc("resolve_all_devices"))) Id MTLCopyAllDevices();

__attribute__((constructor)) static void loaded() { sim_metal_load(); }
}
