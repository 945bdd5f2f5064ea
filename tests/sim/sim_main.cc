// tools/dev sim: runs seeds and scripts, checks golden traces, and replays recordings. Prints the trace of a
// single run, and saves the first seed that breaks a rule as a minimized script.

#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>

#include "boost/program_options.hpp"
#include "tests/sim/golden.h"
#include "tests/sim/minimize.h"
#include "tests/sim/plan.h"
#include "tests/sim/replay.h"
#include "tests/sim/scale.h"
#include "tests/sim/script.h"
#include "tests/sim/world/sim_world.h"

namespace po = boost::program_options;
using namespace ddprun::sim;  // NOLINT: a single-file program

namespace {

double CpuSeconds() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec) + use.ru_utime.tv_usec * 1e-6;
}

void ParseSeeds(const std::string& text, uint64_t& from, uint64_t& to) {
  unsigned long long a = 0, b = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%llu:%llu%c", &a, &b, &rest) != 2 || b < a) {
    throw po::error("--seeds=" + text + ": expected FROM:TO, as in 1:1000");
  }
  from = a;
  to = b;
}

// Writes a minimized script that still breaks a rule, and prints its trace.
void Keep(const Script& script, const std::string& file) {
  std::printf("minimizing the script ...\n");
  const Script small = Minimized(script, [](const Script& s) { return !RunScript(s, false).broken.empty(); });
  const SimResult result = RunScript(small, /*print=*/true);
  std::ofstream out(file);
  out << "# " << result.broken << "\n" << ToString(small);
  if (!out.flush()) {
    std::fprintf(stderr, "sim: cannot write %s\n", file.c_str());
    return;
  }
  std::printf("%zu of %zu faults suffice: %s\n  written to %s; to run it: tools/dev sim --script=%s\n",
              small.faults.size(), script.faults.size(), result.broken.c_str(), file.c_str(), file.c_str());
}

int RunSeeds(uint64_t from, uint64_t to, const std::string& keep) {
  SimResult sum;
  for (uint64_t seed = from; seed <= to; ++seed) {
    const SimResult result = RunSeed(seed, /*print=*/false);
    if (!result.broken.empty()) {
      if (keep != "none") Keep(DrawScript(seed), keep);
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), result.broken.c_str());
      return 1;
    }
    sum.Add(result);
    if ((seed - from + 1) % 1000 == 0) {
      std::printf("%llu seeds passed\n", static_cast<unsigned long long>(seed - from + 1));
      std::fflush(stdout);
    }
  }
  const bool idle = sum.rounds == 0;  // A run without rounds has checked no rule.
  std::printf("%s\n%llu seeds in %.1f s of processor time: %s\n", ToString(sum).c_str(),
              static_cast<unsigned long long>(to - from + 1), CpuSeconds(),
              idle ? "no round was sealed" : "all rules held");
  return idle ? 1 : 0;
}

int RunAndPrint(const Script& script) {
  const SimResult result = RunScript(script, /*print=*/true);
  std::printf("%s\n%s\n", ToString(result).c_str(),
              result.broken.empty() ? "all rules held" : result.broken.c_str());
  return result.broken.empty() ? 0 : 1;
}

int RunFile(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) {
    std::fprintf(stderr, "sim: cannot read %s\n", file.c_str());
    return 2;
  }
  const absl::StatusOr<Script> script = ParseScript(text.str());
  if (!script.ok()) {
    std::fprintf(stderr, "sim: %s: %s\n", file.c_str(), std::string(script.status().message()).c_str());
    return 2;
  }
  return RunAndPrint(*script);
}

int ReplayFile(const std::string& file, const std::string& accept) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "sim: cannot read %s\n", file.c_str());
    return 2;
  }
  std::string again;
  ddprun::StepSink record;
  if (!accept.empty()) {
    record = ddprun::EncodeRecording([&again](const std::string& bytes) { again += bytes; }, [] {});
  }
  const absl::StatusOr<ReplayResult> result = Replay(in, /*print=*/true, std::move(record));
  if (!result.ok()) {
    std::fprintf(stderr, "sim: %s: %s\n", file.c_str(), std::string(result.status().message()).c_str());
    return 2;
  }
  if (result->steps == 0) {
    std::fprintf(stderr, "sim: %s: the recording has no steps\n", file.c_str());
    return 2;
  }
  if (!accept.empty() && !(std::ofstream(accept, std::ios::binary) << again).flush()) {
    std::fprintf(stderr, "sim: cannot write %s\n", accept.c_str());
    return 2;
  }
  std::printf("%lld steps over %.3f s%s: %s; %s\n", static_cast<long long>(result->steps),
              std::chrono::duration<double>(result->length).count(),
              result->whole ? "" : " (the file ends within a step)",
              result->difference.empty() ? "all outcomes match" : result->difference.c_str(),
              result->broken.empty() ? "all rules held" : result->broken.c_str());
  return result->difference.empty() && result->broken.empty() ? 0 : 1;
}

int RunGolden(const std::string& folder, bool update) {
  std::error_code error;
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".trace") files.insert(entry.path());
  }
  if (error || files.empty()) {
    std::fprintf(stderr, "sim: no golden traces in %s\n", folder.c_str());
    return 2;
  }
  int differing = 0;
  for (const std::filesystem::path& file : files) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    absl::StatusOr<Golden> golden = ParseGolden(text.str());
    if (!golden.ok()) {
      std::fprintf(stderr, "sim: %s: %s\n", file.c_str(), std::string(golden.status().message()).c_str());
      return 2;
    }
    const std::string actual = GoldenTrace(golden->script);
    const std::string diff = LineDiff(golden->expected, actual);
    if (diff.empty()) continue;
    ++differing;
    std::printf("%s%s\n%s", file.c_str(), update ? " rewritten" : " differs", diff.c_str());
    golden->expected = actual;
    if (update && !(std::ofstream(file) << ToString(*golden)).flush()) {
      std::fprintf(stderr, "sim: cannot write %s\n", file.c_str());
      return 2;
    }
  }
  std::printf("%zu golden traces, %d %s\n", files.size(), differing, update ? "rewritten" : "differ");
  return differing == 0 || update ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string seeds, script, keep, replay, accept, golden, golden_dir;
  uint64_t seed = 0;
  po::options_description options(
      "Runs the coordinator and agents of a job under simulated faults, one run per seed.\nOptions");
  options.add_options()("help,h", "print this text")("seeds", po::value(&seeds)->default_value("1:2000"),
                                                     "seeds to run: FROM:TO, both included")(
      "seed", po::value(&seed), "run one seed and print its trace")(
      "script", po::value(&script), "run a script, a file of settings and faults, and print its trace")(
      "keep", po::value(&keep)->default_value(std::filesystem::temp_directory_path() / "ddprun-failing.sim"),
      "file for the minimized script of a failing seed; none: do not write it")(
      "draw", po::value(&seed), "print the script of this seed without running it")(
      "replay", po::value(&replay), "replay a file written by ddprun --record=FILE")(
      "accept", po::value(&accept), "with --replay: write the recording with the new outcomes to this file")(
      "golden", po::value(&golden)->implicit_value("check"),
      "check: compare the golden traces with those of this build; update: rewrite those that differ")(
      "golden-dir", po::value(&golden_dir)->default_value("tests/sim/golden"),
      "directory of the golden traces")(
      "scale", "join and restart 1,000 to 10,000 nodes, and measure messages and CPU time");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    po::notify(given);
    if (given.contains("help")) {
      std::cout << options;
      return 0;
    }
    if (given.contains("scale")) return RunScale();
    if (given.contains("golden")) {
      if (golden != "check" && golden != "update")
        throw po::error("--golden=" + golden + ": expected check or update");
      return RunGolden(golden_dir, golden == "update");
    }
    if (given.contains("script")) return RunFile(script);
    if (!accept.empty() && replay.empty()) throw po::error("--accept requires --replay");
    if (given.contains("replay")) return ReplayFile(replay, accept);
    if (given.contains("draw")) {
      std::cout << ToString(DrawScript(seed));
      return 0;
    }
    if (given.contains("seed")) return RunAndPrint(DrawScript(seed));
    uint64_t from = 0, to = 0;
    ParseSeeds(seeds, from, to);
    return RunSeeds(from, to, keep);
  } catch (const po::error& e) {
    std::cerr << "sim: error: " << e.what() << "\n";
    return 2;
  }
}
