#include "worker_sdk/comm/host/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ddprun/status.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

constexpr off_t kOffset = 8192;
constexpr size_t kPart = 1 << 20;

class RegionTest : public testing::Test {
 protected:
  RegionTest() : fd_(memfd_create("region_test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), 1 << 30), 0);  // sparse
  }
  // The mapping of one rank.
  std::shared_ptr<Region> Map(int num_ranks = 2, size_t part_bytes = kPart) {
    auto region = Region::Map(fd_.get(), kOffset, 5, num_ranks, part_bytes);
    EXPECT_TRUE(region.ok()) << region.status();
    return *region;
  }
  // Bytes of the memfd that have memory.
  int64_t Allocated() {
    struct stat st;
    EXPECT_EQ(fstat(fd_.get(), &st), 0);
    return st.st_blocks * 512;
  }
  UniqueFd fd_;
};

TEST_F(RegionTest, RanksSeeEachOthersParts) {
  const auto first = Map(), second = Map();
  EXPECT_EQ(first->id(), 5u);
  ASSERT_EQ(first->Reserve(fd_.get(), 0), OkStatus());
  ASSERT_EQ(second->Reserve(fd_.get(), 1), OkStatus());
  EXPECT_TRUE(std::all_of(first->part(1), first->part(1) + kPart, [](char c) { return c == 0; }));
  std::memset(first->part(0), 'a', kPart);
  std::memset(second->part(1), 'b', kPart);
  EXPECT_EQ(second->part(0)[kPart - 1], 'a');
  EXPECT_EQ(first->part(1)[0], 'b');
  EXPECT_NE(first->part(0), second->part(0));
}

TEST_F(RegionTest, ReserveAllocatesOnlyTheOwnPart) {
  const auto region = Map();
  EXPECT_EQ(Allocated(), 0);
  ASSERT_EQ(region->Reserve(fd_.get(), 1), OkStatus());
  EXPECT_GE(Allocated(), static_cast<int64_t>(kPart));
  EXPECT_LT(Allocated(), static_cast<int64_t>(kPart + kPart / 2));
}

TEST_F(RegionTest, TheLastReleaseFreesThePages) {
  auto first = Map(), second = Map();
  ASSERT_EQ(first->Reserve(fd_.get(), 0), OkStatus());
  ASSERT_EQ(second->Reserve(fd_.get(), 1), OkStatus());
  first->Release();
  EXPECT_FALSE(second->IsReleased());
  EXPECT_GE(Allocated(), static_cast<int64_t>(2 * kPart));
  second->part(0)[0] = 'x';  // the part of a rank that has released it may still be written
  first.reset();
  second->Release();
  EXPECT_TRUE(second->IsReleased());
  EXPECT_LT(Allocated(), static_cast<int64_t>(kPart));
}

// The other rank could not map the region, so it does not release it.
TEST_F(RegionTest, DiscardFreesTheOwnPart) {
  const auto region = Map(3);
  ASSERT_EQ(region->Reserve(fd_.get(), 0), OkStatus());
  ASSERT_EQ(region->Reserve(fd_.get(), 1), OkStatus());
  region->Discard(1);
  EXPECT_LT(Allocated(), static_cast<int64_t>(kPart + kPart / 2));
  EXPECT_GE(Allocated(), static_cast<int64_t>(kPart));
  region->Discard(0);
  region->Release();
  EXPECT_LT(Allocated(), static_cast<int64_t>(kPart));
}

// Whether the memory can be read.
bool IsAccessible(const char* begin) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const bool readable = write(pipe_ends[1], begin, 1) == 1;
  EXPECT_TRUE(readable || errno == EFAULT);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return readable;
}

TEST_F(RegionTest, RetireLeavesTheOwnPart) {
  constexpr int kRanks = 3;
  for (int own = 0; own < kRanks; ++own) {
    auto region = Map(kRanks), other = Map(kRanks);
    const int neighbor = (own + 1) % kRanks;
    ASSERT_EQ(region->Reserve(fd_.get(), own), OkStatus());
    ASSERT_EQ(other->Reserve(fd_.get(), neighbor), OkStatus());
    std::memset(region->part(own), 'a', kPart);
    region->Retire(own);
    region->Retire(own);  // nothing
    EXPECT_TRUE(std::all_of(region->part(own), region->part(own) + kPart, [](char c) { return c == 'a'; }));
    region->part(own)[kPart - 1] = 'b';
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(IsAccessible(region->part(r)), r == own);
      EXPECT_EQ(IsAccessible(region->part(r) + kPart - 1), r == own);
    }
    EXPECT_FALSE(IsAccessible(region->part(0) - 1));  // the control block
    // Does not count the ranks, and frees no part of another rank.
    const int64_t before = Allocated();
    region->Release();
    EXPECT_LE(Allocated(), before - static_cast<int64_t>(kPart));
    other->Retire(neighbor);
    other->Release();
    EXPECT_LT(Allocated(), static_cast<int64_t>(kPart));
  }
}

TEST_F(RegionTest, RetireFreesAPartThatWasReleasedBefore) {
  auto region = Map();
  ASSERT_EQ(region->Reserve(fd_.get(), 1), OkStatus());
  region->Release();
  EXPECT_GE(Allocated(), static_cast<int64_t>(kPart));
  region->Retire(1);
  EXPECT_LT(Allocated(), static_cast<int64_t>(kPart));
}

TEST(RegionSizeTest, ASizeThatIsOutOfRangeIsTheLargestNumber) {
  EXPECT_EQ(Region::SizeOf(2, 1), 3 * 4096u);
  EXPECT_EQ(Region::SizeOf(2, 0), 4096u);
  // A page for the control block, and one for each part, so that the parts are an odd number of pages apart.
  EXPECT_EQ(Region::SizeOf(3, size_t{1} << 40), (uint64_t{3} << 40) + 4 * 4096);
  for (const int num_ranks : {16, 17, 1000}) {
    EXPECT_EQ(Region::SizeOf(num_ranks, size_t{1} << 60), UINT64_MAX) << num_ranks;
  }
  EXPECT_EQ(Region::SizeOf(1, SIZE_MAX), UINT64_MAX);
}

TEST_F(RegionTest, ASealedFileWithoutSpaceIsAnErrorAndNotASignal) {
  const UniqueFd sealed(memfd_create("region_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sealed.get(), kOffset), 0);
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  const auto region = Region::Map(sealed.get(), kOffset, 0, 1, kPart);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->Reserve(sealed.get(), 0).code(), StatusCode::kResourceExhausted);
}

TEST_F(RegionTest, ARegionThatDoesNotFitTheAddressSpaceIsAnError) {
  const auto region = Region::Map(fd_.get(), kOffset, 0, 2, size_t{1} << 60);
  EXPECT_EQ(region.status().code(), StatusCode::kResourceExhausted) << region.status();
}

}  // namespace
}  // namespace ddprun
