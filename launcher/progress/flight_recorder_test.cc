#include "launcher/progress/flight_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

class FlightRecorderTest : public testing::Test {
 protected:
  FlightRecorderTest() {
    static int count = 0;
    stem_ = absl::StrCat(testing::TempDir(), "/trace", getpid(), "_", ++count, "_");
    setenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", stem_.c_str(), 1);
    unsetenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  }
  ~FlightRecorderTest() override { unsetenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"); }
  std::string PipeOf(int rank) const { return absl::StrCat(stem_, rank, ".pipe"); }
  UniqueFd Recorder(int rank) {
    EXPECT_EQ(mkfifo(PipeOf(rank).c_str(), 0600), 0);
    return UniqueFd(open(PipeOf(rank).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  static std::string Read(const UniqueFd& fd) {
    char text[16];
    const ssize_t n = read(fd.get(), text, sizeof(text));
    return n > 0 ? std::string(text, static_cast<size_t>(n)) : "";
  }
  std::string stem_;
};

TEST_F(FlightRecorderTest, AsksTheRecorderOfEachRank) {
  const UniqueFd first = Recorder(4), second = Recorder(5);
  setenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/trace_", 1);
  EXPECT_EQ(AskFlightRecorders({Rank(4), Rank(5)}),
            "PyTorch's flight recorders write the last operations of the ranks to /tmp/trace_RANK");
  EXPECT_EQ(Read(first), "1\n");
  EXPECT_EQ(Read(second), "1\n");
}

TEST_F(FlightRecorderTest, SaysWhyARecorderCannotBeAsked) {
  EXPECT_THAT(AskFlightRecorders({Rank(0)}),
              HasSubstr("RANK.pipe: No such file or directory; they need NCCL"));
  { const UniqueFd gone = Recorder(1); }
  EXPECT_THAT(AskFlightRecorders({Rank(1)}), HasSubstr("RANK.pipe: no process reads it"));
  std::ofstream(PipeOf(2)) << "a file";
  EXPECT_THAT(AskFlightRecorders({Rank(2)}), HasSubstr("RANK.pipe: it is no pipe"));
  std::string text;
  std::getline(std::ifstream(PipeOf(2)), text);
  EXPECT_EQ(text, "a file");
  const UniqueFd good = Recorder(3);
  const std::string some = AskFlightRecorders({Rank(2), Rank(3)});
  EXPECT_THAT(some, HasSubstr("the last operations of the ranks; some of them cannot be asked: "));
}

TEST_F(FlightRecorderTest, DoesNothingWithoutTheVariable) {
  const UniqueFd recorder = Recorder(0);
  setenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "", 1);
  EXPECT_EQ(AskFlightRecorders({Rank(0)}), "");
  unsetenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  EXPECT_EQ(AskFlightRecorders({Rank(0)}), "");
  EXPECT_EQ(Read(recorder), "");
}

TEST_F(FlightRecorderTest, AFullPipeDoesNotBlock) {
  const UniqueFd recorder = Recorder(0);
  const UniqueFd writer(open(PipeOf(0).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  const std::string much(4096, 'x');
  while (write(writer.get(), much.data(), much.size()) > 0) {
  }
  EXPECT_THAT(AskFlightRecorders({Rank(0)}), Not(HasSubstr("cannot")));
}

}  // namespace
}  // namespace ddprun
