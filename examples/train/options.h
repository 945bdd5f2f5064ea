// The flags of `train`, each declared once, in options.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train/model/model_config.h"

namespace ddprun::train {

struct Options {
  bool help = false;

  std::string data;  // file or directory; empty: the text that the program carries
  int64_t steps = 600;
  int64_t seed = 1;
  int64_t global_batch = 16;  // sequences a step, over all workers
  ModelConfig model;
  std::string cpu = "auto";         // the kind of CPU whose bits are computed; see LayersFor
  std::string optimizer = "adamw";  // or "sgd"; see MakeOptimizer
  double learning_rate = 3e-3;
  double weight_decay = 0.1;
  int64_t bucket_bytes = 1 << 20;
  int64_t stall_timeout_s = 300;  // a worker that makes no progress for that long ends the round

  std::string snapshot_dir;  // empty: no snapshots
  int64_t snapshot_every = 50;
  std::string metrics;     // empty: none
  std::string chart;       // empty: none
  std::string sample_log;  // directory; empty: none
  int64_t log_every = 10;
};

// Reads and checks a command line, all that can be checked without the world.
//   Errors: kInvalidArgument naming the flag, its value and what would be right.
absl::StatusOr<Options> ParseOptions(int argc, const char* const* argv);

// What the flags cannot know: whether they fit a world of `world_size` workers.
//   Errors: kInvalidArgument naming the flag, its value and what would be right.
absl::Status ValidateForWorld(const Options& options, int world_size);

// What --help prints.
std::string HelpText();

}  // namespace ddprun::train
