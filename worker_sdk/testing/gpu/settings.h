// What the GPU stand-in does, from the environment variables DDPRUN_STAND_IN_*. README.md describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun::stand_in {

struct Settings {
  uint64_t seed = 0;  // of the delays and of the order of sums; random if it is not set
  int max_delay_us = 2000;

  int devices = 1;
  size_t memory_bytes = size_t{1} << 30;  // of each device
  int driver_version = 0;                 // 0: that of cuda.h
  int init_error = 0;                     // of cuInit
  int64_t lost_after = -1;                // the device of the operation with this number is lost; -1: none
  int lost_error = 700;                   // CUDA_ERROR_ILLEGAL_ADDRESS
  int64_t no_memory_at = -1;              // the allocation with this number fails; -1: none
  bool no_pinned_memory = false;          // cuMemHostAlloc fails
  // A call without a context returns CUDA_ERROR_INVALID_CONTEXT, and does not abort.
  bool context_errors = false;
  bool free_waits = true;    // freeing memory waits for all work of the device
  int retain_error = 0;      // of cuDevicePrimaryCtxRetain
  bool print_leaks = false;  // objects that are left at exit are printed, and the process does not abort

  int nccl_version = 0;          // 0: that of nccl.h
  bool tree_sums = false;        // sums are in the order of the SDK's host backend, not in a random one
  bool silent_deaths = false;    // the death of a peer never becomes an asynchronous error
  int max_error_delay_ms = 200;  // of an asynchronous error

  int cublas_version = 0;  // major; 0: that of cublas_api.h
  // The function of NCCL with this name hangs for so long, or for ever if that is negative: it blocks if it is one that may
  // block, otherwise it stays in progress.
  std::string hang;
  int64_t hang_ms = -1;
  int64_t hang_at = 1;  // the first call of the function that hangs
  // The function of NCCL with this name does nothing, and returns this result.
  std::string fail;
  int fail_with = 2;    // ncclSystemError
  int64_t fail_at = 1;  // the first call of the function that fails

  // Both count the calls of the function.
  bool Hangs(std::string_view call) const;
  bool Fails(std::string_view call) const;
};

// Reads the environment at the first call.
const Settings& TheSettings();

}  // namespace ddprun::stand_in
