#include "launcher/cli/read_within.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLong = seconds(60);
constexpr size_t kMost = 1 << 20;

std::string Path(const std::string& name) { return absl::StrCat(testing::TempDir(), "/read_within_", name); }

TEST(ReadWithinTest, ReadsAFileUpToTheLimit) {
  const std::string text(100'000, 'x');
  std::ofstream(Path("file"), std::ios::binary) << text;
  EXPECT_EQ(ReadWithin(Path("file"), kMost, Duration::zero()).value_or(""), text);
  EXPECT_EQ(ReadWithin(Path("file"), 9'000, kLong).value_or(""), text.substr(0, 9'000));
  EXPECT_EQ(ReadWithin("/dev/null", kMost, kLong).value_or("x"), "");
  EXPECT_EQ(ReadWithin("/dev/zero", kMost, kLong).value_or("").size(), kMost);
}

TEST(ReadWithinTest, ReturnsFileSystemErrors) {
  EXPECT_EQ(ReadWithin(Path("none"), kMost, kLong).status().message(), "No such file or directory");
  EXPECT_EQ(ReadWithin("/", kMost, kLong).status().message(), "Is a directory");
}

TEST(ReadWithinTest, ReadsAPipeThatIsWrittenLater) {
  const std::string fifo = Path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  // Opening blocks until there is a reader, and 100,000 bytes exceed the capacity of a pipe.
  std::thread writer([&] { std::ofstream(fifo) << std::string(50'000, 'a') << std::string(50'000, 'b'); });
  const auto text = ReadWithin(fifo, kMost, kLong);
  writer.join();
  EXPECT_EQ(text.value_or(""), std::string(50'000, 'a') + std::string(50'000, 'b'));
}

TEST(ReadWithinTest, TimesOutOnAPipeWithoutAWriter) {
  const std::string fifo = Path("silent");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto text = ReadWithin(fifo, kMost, milliseconds(1));
  EXPECT_EQ(text.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("no data from the pipe within"));
}

TEST(ReadWithinTest, TimesOutOnAPipeThatStaysOpen) {
  const std::string fifo = Path("open");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::fstream both(fifo);  // opens both ends, so that neither blocks
  both << "half" << std::flush;
  const auto text = ReadWithin(fifo, kMost, milliseconds(1));
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("no end of the pipe's data within"));
}

TEST(ReadWithinTest, ReturnsWhenAnOpenPipeHasDeliveredTheMaximum) {
  const std::string fifo = Path("enough");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::fstream both(fifo);
  both << "0123456789" << std::flush;
  EXPECT_EQ(ReadWithin(fifo, 10, kLong).value_or(""), "0123456789");
}

// The writer is faster than the reader, so that the pipe is never empty.
TEST(ReadWithinTest, TimesOutOnAPipeThatAlwaysHasData) {
  const std::string fifo = Path("endless");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int both = open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(both, 0);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    const std::string piece(1 << 16, 'x');
    while (!done) {
      if (write(both, piece.data(), piece.size()) < 0) std::this_thread::yield();
    }
  });
  const auto text = ReadWithin(fifo, size_t{1} << 40, milliseconds(50));
  done = true;
  writer.join();
  close(both);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kDeadlineExceeded) << text.status();
}

}  // namespace
}  // namespace ddprun
