// Functions of the stand-in for tests: of its libcuda.so.1, if nothing else is said. No header of CUDA is needed, so that a test
// can look them up with dlsym().
#pragma once

extern "C" {

// Objects that the program has not released. Those of a lost device are not counted, because they cannot be released.
struct StandInCounts {
  int contexts;  // primary contexts that are retained
  int streams;
  int events;
  int allocations;  // of device memory
  int pinned;       // allocations of host memory
  int modules;
  int communicators;
  int handles;  // of cuBLAS
};

__attribute__((visibility("default"))) void StandInReport(StandInCounts* counts);

// Later work in the stream, a CUstream, waits until StandInRelease is called with the result, once.
__attribute__((visibility("default"))) void* StandInHold(void* stream);
__attribute__((visibility("default"))) void StandInRelease(void* hold);

// The device is lost from now on, with the error DDPRUN_STAND_IN_LOST_ERROR.
//   REQUIRES: cuInit was called; 0 <= device < number of devices.
__attribute__((visibility("default"))) void StandInLoseDevice(int device);

// Of libnccl.so.2: ncclCommGetAsyncError of all communicators of this process returns this result, an ncclResult_t, from now on.
__attribute__((visibility("default"))) void StandInFailCommunicators(int result);

}  // extern "C"
