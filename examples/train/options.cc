#include "examples/train/options.h"

#include <boost/program_options.hpp>
#include <cmath>
#include <exception>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"

namespace ddprun::train {
namespace {

namespace po = boost::program_options;

constexpr double kMaxBucketMb = 1 << 20;

template <typename T>
po::typed_value<T>* Value(T& place, const char* name) {
  return po::value<T>(&place)->default_value(place, StrCat(place))->value_name(name);
}
po::typed_value<std::string>* Path(std::string& place) {
  return po::value<std::string>(&place)->value_name("PATH");
}

// Declares every flag. Parsing writes the values to `o`; the defaults are the current values of `o`.
po::options_description Flags(Options& o) {
  po::options_description data("Data"), model("Model"), training("Training"), files("Files");
  data.add_options()  //
      ("data", Path(o.data),
       "text to learn: a file, or a directory with all files below it; default: a small built-in text")  //
      ("seed", Value(o.seed, "N"), "seed of the initial parameters and of the sample order");
  model.add_options()                                                                         //
      ("layers", Value(o.model.layers, "N"), "transformer blocks")                            //
      ("heads", Value(o.model.heads, "N"), "attention heads per block; must divide --width")  //
      ("width", Value(o.model.width, "N"), "width of the residual stream")                    //
      ("context", Value(o.model.context, "N"), "bytes of context per prediction");
  training.add_options()                                                                              //
      ("steps", Value(o.steps, "N"), "optimizer updates in total, including those before a restart")  //
      ("global-batch", Value(o.global_batch, "N"),
       "sequences per step, over all workers; at least one per worker. Results are bit-identical for all "
       "numbers of workers that give each worker the same power-of-two number of sequences; otherwise they "
       "differ by the rounding of sums")  //
      ("accumulate", Value(o.accumulate, "N"),
       "passes in which a worker computes its sequences of a step. Each pass has 1/N of them, rounded up to "
       "a "
       "power of two, and the values of one pass are in memory: per sequence, about 4 * layers * context * "
       "(16 * width + heads * context) bytes. Results are bit-identical for all N")  //
      ("device", Value(o.device, "NAME"),
       "where the model is computed: cuda, a GPU for each worker; cpu; or auto: cuda if each worker has a "
       "GPU, otherwise cpu. Rank 0 prints which, and why. The results of the two differ by rounding; a "
       "snapshot "
       "of one can be resumed with the other")  //
      ("cpu", Value(o.cpu, "KIND"),
       "kind of CPU to compute for: avx2, baseline (any CPU), or auto, the best that this CPU supports. All "
       "workers must use the same kind, because the bits differ between kinds")  //
      ("optimizer", Value(o.optimizer, "NAME"),
       "adamw, or sgd (with momentum), which needs a larger --lr. A snapshot can be resumed only with the "
       "optimizer that wrote it")                                                          //
      ("lr", Value(o.learning_rate, "X"), "learning rate, reached after a short warm-up")  //
      ("weight-decay", Value(o.weight_decay, "X"),
       "decay of weights towards zero, multiplied by the learning rate")  //
      ("clip", Value(o.clip, "NORM"),
       "limit of the global norm of the gradients of a step: a larger one is scaled down to it; 0: no "
       "limit")  //
      ("bucket-mb", Value(o.bucket_mb, "X"),
       "MiB of gradients per all-reduce; smaller buckets start earlier, larger ones cost less. 0: planned "
       "from measurements in the second step. Results are bit-identical for all X")  //
      ("no-overlap", po::bool_switch(&o.no_overlap),
       "sum gradients over the workers only after the whole backward pass, to measure what overlap gains")  //
      ("compression", Value(o.compression, "NAME"),
       "type in which workers exchange gradients: none (float32), bf16 or fp16. The others send half the "
       "bytes and round each gradient before and after the sum, so that results also depend on the number of "
       "workers")  //
      ("in-place", po::bool_switch(&o.in_place),
       "workers that are not lost keep their process and memory when a round ends; new ones get the state "
       "from one of them, and "
       "no snapshot is read unless all workers were lost. Needs ddprun. Results are bit-identical")  //
      ("stall-timeout", Value(o.stall_timeout_s, "SECONDS"),
       "how long workers wait for a worker that makes no progress in a step or with a snapshot");
  files.add_options()  //
      ("snapshot-dir", Path(o.snapshot_dir),
       "directory for snapshots, shared by all nodes; training resumes from the newest one there")  //
      ("snapshot-every", Value(o.snapshot_every, "N"),
       "steps between snapshots; the last step always writes one")                     //
      ("metrics", Path(o.metrics), "file to which every step appends a line of JSON")  //
      ("chart", Path(o.chart),
       "SVG of the loss curve, drawn from the metrics at the end; default: next to the --metrics file")  //
      ("sample-log", Path(o.sample_log),
       "directory where each worker records which samples each step uses, to verify that none is left out "
       "or used twice")  //
      ("trace", Path(o.trace),
       "file for the times of forward, backward, buckets, optimizer and snapshots of all workers, for "
       "chrome://tracing and ui.perfetto.dev. Rank 0 writes it at the end of the run; it has the last steps "
       "of the last round. With --device=cuda, the times are those at which the host has queued the work")  //
      ("log-every", Value(o.log_every, "N"), "steps between lines on standard output")                      //
      ("help", po::bool_switch(&o.help), "print this text and exit");
  po::options_description all("Flags");
  all.add(data).add(model).add(training).add(files);
  return all;
}

Status AtLeastOne(std::string_view flag, int64_t value) {
  if (value >= 1) return OkStatus();
  return InvalidArgumentError(StrCat(flag, "=", value, ": must be at least 1"));
}

Status NotNegative(std::string_view flag, double value) {
  if (std::isfinite(value) && value >= 0) return OkStatus();
  return InvalidArgumentError(StrCat(flag, "=", value, ": must be a finite number >= 0"));
}

Status Validate(const Options& o) {
  DDPRUN_RETURN_IF_ERROR(Validate(o.model));
  if (o.seed < 0) {
    return InvalidArgumentError(StrCat("--seed=", o.seed, ": must be at least 0"));
  }
  if (o.device != "auto" && o.device != "cuda" && o.device != "cpu") {
    return InvalidArgumentError(StrCat("--device=", o.device, ": give auto, cuda or cpu"));
  }
  if (o.cpu != "auto" && o.cpu != "avx2" && o.cpu != "baseline") {
    return InvalidArgumentError(StrCat("--cpu=", o.cpu, ": give auto, avx2 or baseline"));
  }
  if (o.optimizer != "adamw" && o.optimizer != "sgd") {
    return InvalidArgumentError(StrCat("--optimizer=", o.optimizer, ": give adamw or sgd"));
  }
  if (o.compression != "none" && o.compression != "bf16" && o.compression != "fp16") {
    return InvalidArgumentError(StrCat("--compression=", o.compression, ": give none, bf16 or fp16"));
  }
  DDPRUN_RETURN_IF_ERROR(AtLeastOne("--steps", o.steps));
  DDPRUN_RETURN_IF_ERROR(AtLeastOne("--global-batch", o.global_batch));
  DDPRUN_RETURN_IF_ERROR(AtLeastOne("--accumulate", o.accumulate));
  DDPRUN_RETURN_IF_ERROR(AtLeastOne("--stall-timeout", o.stall_timeout_s));
  DDPRUN_RETURN_IF_ERROR(AtLeastOne("--snapshot-every", o.snapshot_every));
  DDPRUN_RETURN_IF_ERROR(AtLeastOne("--log-every", o.log_every));
  DDPRUN_RETURN_IF_ERROR(NotNegative("--lr", o.learning_rate));
  DDPRUN_RETURN_IF_ERROR(NotNegative("--weight-decay", o.weight_decay));
  DDPRUN_RETURN_IF_ERROR(NotNegative("--clip", o.clip));
  DDPRUN_RETURN_IF_ERROR(NotNegative("--bucket-mb", o.bucket_mb));
  if (o.bucket_mb > kMaxBucketMb) {
    return InvalidArgumentError(StrCat("--bucket-mb=", o.bucket_mb, ": must be at most ", kMaxBucketMb));
  }
  if (!o.chart.empty() && o.metrics.empty()) {
    return InvalidArgumentError(
        StrCat("--chart=", o.chart, " is drawn from the metrics: give --metrics=FILE, too"));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Options> ParseOptions(int argc, const char* const* argv) {
  Options options;
  const po::options_description flags = Flags(options);
  // Only exact names are accepted. Otherwise a new flag could change the meaning of an abbreviation.
  constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  try {
    po::variables_map given;
    po::store(po::command_line_parser(argc, argv)
                  .options(flags)
                  .style(kStyle)
                  .positional(po::positional_options_description())
                  .run(),
              given);
    po::notify(given);
  } catch (const std::exception& error) {
    return InvalidArgumentError(error.what());
  }
  if (options.help) return options;
  DDPRUN_RETURN_IF_ERROR(Validate(options));
  if (options.chart.empty() && !options.metrics.empty()) {
    options.chart = std::filesystem::path(options.metrics).replace_extension(".svg").string();
  }
  return options;
}

Status ValidateForWorld(const Options& options, int world_size) {
  if (options.global_batch >= world_size) return OkStatus();
  return InvalidArgumentError(StrCat("--global-batch=", options.global_batch, " for ", world_size,
                                     " workers: give at least one sequence to each"));
}

std::string HelpText() {
  Options defaults;
  std::ostringstream text;
  text << "Usage: train [flags]\n"
          "Trains a byte-level GPT, together with all workers of a launcher (ddprun train ...), or alone.\n\n"
       << Flags(defaults);
  return text.str();
}

}  // namespace ddprun::train
