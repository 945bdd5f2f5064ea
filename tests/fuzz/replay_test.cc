// Runs a fuzz target on its corpus and on mutations of the corpus, as a regression test without a fuzzer.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void RunOne(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::vector<std::string> Corpus() {
  std::vector<std::string> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::sort(corpus.begin(), corpus.end());
  return corpus;
}

TEST(ReplayTest, ReplaysTheCorpus) {
  const std::vector<std::string> corpus = Corpus();
  ASSERT_GE(corpus.size(), 10);
  for (const std::string& input : corpus) RunOne(input);
}

// A broken invariant aborts the process with a message.
TEST(ReplayTest, ReplaysMutationsOfTheCorpus) {
  const std::vector<std::string> corpus = Corpus();
  ASSERT_FALSE(corpus.empty());
  std::mt19937 random(1);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int i = 0; i < 5000; ++i) {
    std::string input = corpus[pick(corpus.size())] + corpus[pick(corpus.size())];
    for (size_t changes = pick(4); changes > 0 && !input.empty(); --changes) {
      const size_t at = pick(input.size());
      switch (pick(3)) {
        case 0:
          input[at] = static_cast<char>(random());
          break;
        case 1:
          input.erase(at, 1 + pick(8));
          break;
        case 2:
          input.insert(at, corpus[pick(corpus.size())].substr(0, pick(40)));
          break;
      }
    }
    RunOne(input);
  }
}

}  // namespace
