#include "examples/train/options.h"

#include <string>
#include <vector>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun::train {
namespace {

using testing::HasSubstr;

StatusOr<Options> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "train");
  return ParseOptions(static_cast<int>(flags.size()), flags.data());
}

TEST(OptionsTest, HasDefaults) {
  const StatusOr<Options> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->data, "");
  EXPECT_EQ(options->steps, Options().steps);
  EXPECT_EQ(options->model, ModelConfig());
  EXPECT_EQ(options->optimizer, "adamw");
  EXPECT_FALSE(options->no_overlap);
}

TEST(OptionsTest, EveryFlagReachesItsField) {
  const StatusOr<Options> options = Parse({"--data=D",           "--steps=7",
                                           "--seed=8",           "--global-batch=9",
                                           "--accumulate=2",     "--layers=3",
                                           "--heads=5",          "--width=20",
                                           "--context=11",       "--optimizer=sgd",
                                           "--lr=0.5",           "--weight-decay=0",
                                           "--bucket-mb=1.5",    "--no-overlap",
                                           "--compression=bf16", "--clip=0.25",
                                           "--snapshot-dir=S",   "--snapshot-every=13",
                                           "--metrics=M.jsonl",  "--chart=C.svg",
                                           "--log-every",        "14",
                                           "--trace=T.json"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->data, "D");
  EXPECT_EQ(options->steps, 7);
  EXPECT_EQ(options->seed, 8);
  EXPECT_EQ(options->global_batch, 9);
  EXPECT_EQ(options->accumulate, 2);
  EXPECT_EQ(options->model, (ModelConfig{.layers = 3, .heads = 5, .width = 20, .context = 11}));
  EXPECT_EQ(options->optimizer, "sgd");
  EXPECT_EQ(options->learning_rate, 0.5);
  EXPECT_EQ(options->weight_decay, 0);
  EXPECT_EQ(options->bucket_mb, 1.5);
  EXPECT_TRUE(options->no_overlap);
  EXPECT_EQ(options->compression, "bf16");
  EXPECT_EQ(options->clip, 0.25);
  EXPECT_EQ(options->snapshot_dir, "S");
  EXPECT_EQ(options->snapshot_every, 13);
  EXPECT_EQ(options->metrics, "M.jsonl");
  EXPECT_EQ(options->chart, "C.svg");
  EXPECT_EQ(options->log_every, 14);
  EXPECT_EQ(options->trace, "T.json");
  EXPECT_FALSE(options->help);
}

TEST(OptionsTest, ChartDefaultsToTheDirectoryOfTheMetrics) {
  EXPECT_EQ(Parse({"--metrics=out/loss.jsonl"})->chart, "out/loss.svg");
  EXPECT_EQ(Parse({})->chart, "");
}

TEST(OptionsTest, ErrorsNameFlagAndValue) {
  const struct {
    const char* flag;
    const char* message;
  } kCases[] = {
      {"--heads=5", "--heads=5 does not divide --width=64"},
      {"--optimizer=adam", "--optimizer=adam: give adamw or sgd"},
      {"--compression=int8", "--compression=int8: give none, bf16 or fp16"},
      {"--layers=0", "--layers=0: must be from 1 to 1024"},
      {"--width=-8", "--width=-8: must be from 1 to 65536"},
      {"--context=x", "the argument ('x') for option '--context' is invalid"},
      {"--steps=0", "--steps=0: must be at least 1"},
      {"--global-batch=-1", "--global-batch=-1: must be at least 1"},
      {"--accumulate=0", "--accumulate=0: must be at least 1"},
      {"--bucket-mb=-1", "--bucket-mb=-1: must be a finite number >= 0"},
      {"--bucket-mb=1e9", "--bucket-mb=1e+09: must be at most 1.04858e+06"},
      {"--clip=nan", "--clip=nan: must be a finite number >= 0"},
      {"--snapshot-every=0", "--snapshot-every=0: must be at least 1"},
      {"--log-every=0", "--log-every=0: must be at least 1"},
      {"--lr=nan", "--lr=nan: must be a finite number >= 0"},
      {"--lr=-1", "--lr=-1: must be a finite number >= 0"},
      {"--weight-decay=inf", "--weight-decay=inf: must be a finite number >= 0"},
      {"--seed=-1", "--seed=-1: must be at least 0"},
      {"--seed=99999999999999999999", "'--seed' is invalid"},
      {"--chart=c.svg", "--chart=c.svg is drawn from the metrics: give --metrics=FILE, too"},
      {"--step=5", "unrecognised option '--step=5'"},  // no abbreviations
      {"--bogus", "unrecognised option '--bogus'"},
      {"stray", "too many positional options"},
  };
  for (const auto& c : kCases) {
    const Status status = Parse({c.flag}).status();
    EXPECT_TRUE(IsInvalidArgument(status)) << c.flag << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.flag;
  }
}

TEST(OptionsTest, RequiresASequencePerRank) {
  Options options;
  options.global_batch = 4;
  EXPECT_TRUE(ValidateForWorld(options, 4).ok());
  EXPECT_EQ(ValidateForWorld(options, 5),
            InvalidArgumentError("--global-batch=4 for 5 workers: give at least one sequence to each"));
}

TEST(OptionsTest, HelpListsEveryFlag) {
  EXPECT_TRUE(Parse({"--help", "--steps=0"})->help);
  for (const char* flag :
       {"data",       "steps",       "seed",    "global-batch", "accumulate",     "layers",
        "heads",      "width",       "context", "lr",           "weight-decay",   "bucket-mb",
        "no-overlap", "compression", "clip",    "snapshot-dir", "snapshot-every", "metrics",
        "chart",      "log-every",   "trace",   "help"}) {
    EXPECT_THAT(HelpText(), HasSubstr(std::string("  --") + flag + " "));
  }
}

}  // namespace
}  // namespace ddprun::train
