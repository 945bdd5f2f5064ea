#include "base/operation_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using Bytes = std::array<unsigned char, sizeof(OperationPage)>;

UniqueFd Memory(const void* bytes, size_t size) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(fd);
  EXPECT_EQ(write(fd.get(), bytes, size), static_cast<ssize_t>(size));
  return fd;
}

// The bytes are a contract between releases.
TEST(OperationPageTest, HasTheDocumentedBytes) {
  const Bytes waits = {1, 0, 0, 0, 2, 0, 0, 0, 0x6c, 0x22, 0, 0, 0, 0, 0, 3, 5, 1};
  const UniqueFd memory = Memory(waits.data(), waits.size());
  EXPECT_EQ(ReadOperation(memory.get()),
            (WorkerEvidence::Operation{.kind = "all-gather", .number = 8812, .in_flight = true}));
  EXPECT_EQ(ReadWaited(memory.get()), Duration(261));
  const Bytes ended = {1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 64};
  EXPECT_EQ(ReadOperation(Memory(ended.data(), ended.size()).get()),
            (WorkerEvidence::Operation{.kind = "split", .number = 7, .in_flight = false}));
}

TEST(OperationPageTest, NamesOnlyKindsThatExist) {
  EXPECT_STREQ(NameOf(OperationKind::kAllReduce), "all-reduce");
  EXPECT_STREQ(NameOf(static_cast<OperationKind>(200)), "unknown operation");
}

TEST(OperationPageTest, IgnoresMemoryThatIsNoPage) {
  const OperationPage unused;
  EXPECT_EQ(ReadOperation(Memory(&unused, sizeof(unused)).get()), std::nullopt) << "version 0";
  OperationPage page;
  page.version = OperationPage::kVersion;
  EXPECT_EQ(ReadOperation(Memory(&page, sizeof(page)).get()), WorkerEvidence::Operation())
      << "nothing was awaited";
  EXPECT_EQ(ReadWaited(Memory(&page, sizeof(page)).get()), std::nullopt) << "nothing was awaited";
  page.operation = OperationPage::Pack(OperationKind::kBarrier, 5);
  EXPECT_TRUE(ReadOperation(Memory(&page, sizeof(page)).get()).has_value());
  EXPECT_TRUE(ReadOperation(Memory(&page, 16).get()).has_value()) << "of an earlier release";
  EXPECT_EQ(ReadWaited(Memory(&page, 16).get()), std::nullopt) << "of an earlier release";
  EXPECT_EQ(ReadOperation(Memory(&page, 15).get()), std::nullopt) << "cut";
  EXPECT_EQ(ReadOperation(Memory(&page, 0).get()), std::nullopt) << "empty";
  page.version = OperationPage::kVersion + 1;
  EXPECT_EQ(ReadOperation(Memory(&page, sizeof(page)).get()), std::nullopt) << "another version";
  EXPECT_EQ(ReadWaited(Memory(&page, sizeof(page)).get()), std::nullopt) << "another version";
  EXPECT_EQ(ReadWaited(Memory(&page, 8).get()), std::nullopt) << "cut";
  page.version = OperationPage::kVersion;
  page.waited = OperationPage::kUnknown;
  EXPECT_EQ(ReadWaited(Memory(&page, sizeof(page)).get()), std::nullopt);
  page.waited = (uint64_t{1} << 60) + 1;
  EXPECT_EQ(ReadWaited(Memory(&page, sizeof(page)).get()), std::nullopt) << "no worker has waited so long";
}

// A read of these may never return.
TEST(OperationPageTest, APipeAndAFileAreNoMemory) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_FALSE(IsMemory(ends[0]));
  close(ends[0]);
  close(ends[1]);
  const UniqueFd folder(open("/", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IsMemory(folder.get()));
  const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IsMemory(file.get()));
  EXPECT_FALSE(IsMemory(-1));
  EXPECT_TRUE(IsMemory(Memory("", 0).get()));
}

}  // namespace
}  // namespace ddprun
