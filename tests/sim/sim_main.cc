// tools/dev sim: runs seeds, tells the story of a single one or of the first that breaks a rule.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

#include "boost/program_options.hpp"
#include "tests/sim/sim_world.h"

namespace po = boost::program_options;

int main(int argc, char** argv) {
  std::string seeds;
  po::options_description options("Runs the pure machines under simulated faults, one run a seed.\nOptions");
  options.add_options()("help,h", "print this text")(
      "seeds", po::value(&seeds)->default_value("1:1000"),
      "FROM:TO, both included; with one seed its story is printed");
  uint64_t from = 0;
  uint64_t to = 0;
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    po::notify(given);
    if (given.contains("help")) {
      std::cout << options;
      return 0;
    }
    char rest = 0;
    unsigned long long a = 0, b = 0;
    if (std::sscanf(seeds.c_str(), "%llu:%llu%c", &a, &b, &rest) != 2 || b < a) {
      throw po::error("--seeds=" + seeds + ": expected FROM:TO, as in 1:1000");
    }
    from = a;
    to = b;
  } catch (const po::error& e) {
    std::cerr << "sim: error: " << e.what() << "\n";
    return 2;
  }
  int64_t steps = 0;
  for (uint64_t seed = from; seed <= to; ++seed) {
    const ddprun::sim::SimResult result = ddprun::sim::RunSeed(seed, from == to);
    if (!result.broken.empty()) {
      if (from != to) (void)ddprun::sim::RunSeed(seed, true);
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), result.broken.c_str());
      return 1;
    }
    steps += result.steps;
    if (from != to && (seed - from + 1) % 1000 == 0) {
      std::printf("%llu seeds hold\n", static_cast<unsigned long long>(seed - from + 1));
      std::fflush(stdout);
    }
  }
  std::printf("%llu seeds, %lld steps: all rules held\n", static_cast<unsigned long long>(to - from + 1),
              static_cast<long long>(steps));
  return 0;
}
