#include "launcher/logs/pipe_peek.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

class PipePeekTest : public testing::Test {
 protected:
  PipePeekTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_.Reset(ends[0]);
    writer_.Reset(ends[1]);
  }
  void Write(const std::string& text) {
    ASSERT_EQ(write(writer_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string Look() { return std::string(peek_.Look(reader_.get(), all_)); }

  UniqueFd reader_, writer_;
  PipePeek peek_;
  size_t all_ = 0;
};

TEST_F(PipePeekTest, LookDoesNotConsumeBytes) {
  EXPECT_EQ(Look(), "");
  EXPECT_EQ(all_, 0u);
  Write("one ");
  EXPECT_EQ(Look(), "one ");
  Write("two");
  EXPECT_EQ(Look(), "one two");
  EXPECT_EQ(all_, 7u);
  char buffer[16];
  EXPECT_EQ(read(reader_.get(), buffer, sizeof buffer), 7);
  EXPECT_EQ(Look(), "");
}

TEST_F(PipePeekTest, LookReturnsTheLastBytes) {
  std::string text;
  for (int i = 0; text.size() < 3 * PipePeek::kMaxBytes; ++i) text += std::to_string(i) + "\n";
  text.resize(3 * PipePeek::kMaxBytes);
  Write(text);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Look(), text.substr(2 * PipePeek::kMaxBytes));
    EXPECT_EQ(all_, text.size());
  }
}

TEST_F(PipePeekTest, LookReturnsNoBytesAtEndOfFileOrIfTheFileIsNotAPipe) {
  writer_.Reset();
  EXPECT_EQ(Look(), "");
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(peek_.Look(null.get(), all_), "");
}

}  // namespace
}  // namespace ddprun
