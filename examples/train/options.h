// The flags of `train`, each declared once, in options.cc.
#pragma once

#include <cstdint>
#include <string>

#include "ddprun/status.h"
#include "examples/train/model/model_config.h"

namespace ddprun::train {

struct Options {
  bool help = false;

  std::string data;  // file or directory; empty: the built-in text
  int64_t steps = 600;
  int64_t seed = 1;
  int64_t global_batch = 16;  // sequences per step, over all workers
  int64_t accumulate = 1;     // passes in which a worker computes its sequences of a step
  ModelConfig model;
  std::string device = "auto";      // or "cuda", "cpu"; see device_choice.h
  std::string cpu = "auto";         // CPU variant to compute with; see LayersFor
  std::string optimizer = "adamw";  // or "sgd"; see MakeOptimizer
  double learning_rate = 3e-3;
  double weight_decay = 0.1;
  double clip = 0;       // limit of the gradients' global norm; 0: none
  double bucket_mb = 0;  // MiB; 0: planned
  bool no_overlap = false;
  std::string compression = "none";  // or "bf16", "fp16": the type in which workers exchange gradients
  bool in_place = false;
  int64_t stall_timeout_s = 300;  // the round ends if a worker makes no progress for this long

  std::string snapshot_dir;  // empty: no snapshots
  int64_t snapshot_every = 50;
  std::string metrics;     // empty: none
  std::string chart;       // empty: none
  std::string sample_log;  // directory; empty: none
  std::string trace;       // empty: none
  int64_t log_every = 10;
};

// Parses a command line and validates everything that does not depend on the world size.
//   Errors: kInvalidArgument naming the flag, its value and what is allowed.
StatusOr<Options> ParseOptions(int argc, const char* const* argv);

// Checks that the options suit a world of `world_size` workers.
//   Errors: kInvalidArgument naming the flag, its value and what is allowed.
Status ValidateForWorld(const Options& options, int world_size);

// The output of --help.
std::string HelpText();

}  // namespace ddprun::train
