#include "worker_sdk/device/cuda/kernels.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;

#ifdef DDPRUN_HAVE_CUDA
constexpr bool kHaveCuda = true;
#else
constexpr bool kHaveCuda = false;
#endif

constexpr int kPtx = 1, kElf = 2;  // kinds of entries

template <typename T>
T At(std::string_view bytes, size_t offset) {
  if (offset > bytes.size() || sizeof(T) > bytes.size() - offset) {
    ADD_FAILURE() << sizeof(T) << " bytes at " << offset << " are beyond the end, " << bytes.size();
    return T{};
  }
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string_view From(std::string_view bytes, size_t offset) {
  EXPECT_LE(offset, bytes.size());
  return bytes.substr(std::min(offset, bytes.size()));
}

struct Entry {
  int kind;
  int architecture;  // 80 for sm_80 or compute_80
  std::string_view content;
};

// The entries of a fatbin: a head of 16 bytes, then the entries, each with a head of its own. An empty image has none.
std::vector<Entry> EntriesOf(std::string_view image) {
  if (image.empty()) return {};
  EXPECT_EQ(At<uint32_t>(image, 0), 0xBA55ED50);
  const auto head = At<uint16_t>(image, 6);
  EXPECT_EQ(head + At<uint64_t>(image, 8), image.size());
  std::vector<Entry> entries;
  for (std::string_view rest = From(image, head); !rest.empty();) {
    const auto entry_head = At<uint32_t>(rest, 4);
    const auto size = At<uint64_t>(rest, 8);
    if (entry_head < 32 || entry_head + size > rest.size()) {
      ADD_FAILURE() << "an entry of " << entry_head << " + " << size << " bytes, of which " << rest.size()
                    << " exist";
      break;
    }
    entries.push_back({At<uint16_t>(rest, 0), At<int32_t>(rest, 28), rest.substr(entry_head, size)});
    rest.remove_prefix(entry_head + size);
  }
  return entries;
}

std::set<std::string> Matches(std::string_view text, const std::string& pattern) {
  const std::string copy(text);
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator it(copy.begin(), copy.end(), regex); it != std::sregex_iterator(); ++it)
    names.insert((*it)[1]);
  return names;
}

// The kernels in machine code: each has a section .text.NAME.
std::set<std::string> KernelsOfElf(std::string_view elf) {
  EXPECT_EQ(elf.substr(0, SELFMAG), ELFMAG);
  const auto head = At<Elf64_Ehdr>(elf, 0);
  const auto section = [&](size_t i) { return At<Elf64_Shdr>(elf, head.e_shoff + i * sizeof(Elf64_Shdr)); };
  const auto strings = section(head.e_shstrndx);
  const std::string_view names = From(elf, strings.sh_offset);
  std::set<std::string> kernels;
  for (size_t i = 0; i < head.e_shnum; ++i) {
    const std::string_view from_name = From(names, section(i).sh_name);
    const std::string_view name = from_name.substr(0, from_name.find('\0'));
    if (constexpr std::string_view kText = ".text."; name.starts_with(kText))
      kernels.emplace(name.substr(kText.size()));
  }
  return kernels;
}

std::set<std::string> KernelsOfSource() {
  std::ifstream file(std::string(getenv("TEST_SRCDIR")) + "/ddprun/worker_sdk/device/cuda/kernels.cu");
  const std::string source(std::istreambuf_iterator<char>(file), {});
  return Matches(source, R"(__global__ void (\w+)\()");
}

std::string_view Image() {
  const auto image = KernelsImage();
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

TEST(KernelsTest, TheImageIsEmptyWithoutAToolkit) { EXPECT_EQ(Image().empty(), !kHaveCuda); }

TEST(KernelsTest, TheImageIsAligned) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(KernelsImage().data()) % 64, 0);
}

TEST(KernelsTest, HasMachineCodeForTwoArchitecturesAndPtxForNewerOnes) {
  using Entries = std::vector<std::pair<int, int>>;
  Entries found;
  for (const Entry& entry : EntriesOf(Image())) found.emplace_back(entry.kind, entry.architecture);
  EXPECT_THAT(found,
              UnorderedElementsAreArray(kHaveCuda ? Entries{{kElf, 80}, {kElf, 90}, {kPtx, 90}} : Entries{}));
}

TEST(KernelsTest, EveryEntryHasEveryKernel) {
  const std::set<std::string> kernels = KernelsOfSource();
  ASSERT_THAT(kernels, Not(IsEmpty()));
  for (const Entry& entry : EntriesOf(Image())) {
    SCOPED_TRACE(entry.architecture);
    EXPECT_EQ(entry.kind == kElf ? KernelsOfElf(entry.content) : Matches(entry.content, R"(\.entry (\w+)\()"),
              kernels);
  }
}

// The compiler may contract operations that do not name their rounding, and those named below are not exact.
TEST(KernelsTest, EveryFloatingPointOperationIsRoundedByItself) {
  for (const Entry& entry : EntriesOf(Image())) {
    if (entry.kind != kPtx) continue;
    EXPECT_THAT(Matches(entry.content, R"(\s((?:add|sub|mul|div|sqrt)\.rn\.f32)\s)"),
                UnorderedElementsAre("add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "sqrt.rn.f32"));
    EXPECT_THAT(Matches(entry.content, R"(\s((?:add|sub|mul|div|sqrt)\.f\d+)\s)"), IsEmpty());
    EXPECT_THAT(Matches(entry.content, R"(\s((?:fma|mad)\.\S*f\d+|\S*\.(?:approx|full|ftz)\.\S*)\s)"),
                IsEmpty());
  }
}

}  // namespace
}  // namespace ddprun
