// Functions of the stand-in's libcuda.so.1 for tests. No header of CUDA is needed, so that a test can look them up with dlsym().
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

}  // extern "C"
