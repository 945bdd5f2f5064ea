#include "launcher/report/error_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/own_mounts.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNested[] =
    R"({"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback:\n  x", "timestamp": "1795248899"}}})";

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ErrorFileTest, ParsesBothShapes) {
  EXPECT_EQ(ParseErrorFile(kNested), (WorkerError{"Traceback:\n  x", 1795248899, kNested}));
  const struct {
    const char* json;
    const char* text;
    int64_t timestamp;
    bool plain;
  } kCases[] = {
      {R"({"message": {"message": "m", "extraInfo": {"timestamp": 5}}})", "m", 5, false},
      {R"({"message": {"extraInfo": {"timestamp": "5"}}})", "<N/A>", 5, false},
      {R"({"message": "plain", "timestamp": 7})", "plain", 7, true},
      {R"({"message": "plain", "timestamp": "7"})", "plain", 7, true},
      {R"({"message": "plain", "timestamp": 7.9})", "plain", 7, true},
      {R"({"message": "plain"})", "plain", 0, true},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(ParseErrorFile(c.json), (WorkerError{c.text, c.timestamp, c.json, c.plain})) << c.json;
}

// Python's json.dumps writes unpaired surrogates, for example, for a file name that is not valid UTF-8.
TEST(ErrorFileTest, ReplacesUnpairedSurrogates) {
  const auto error =
      ParseErrorFile(R"({"message": "caf\udce9 \uD83E\uddc0 \\udce9 \ud83e", "timestamp": 1})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->text, "caf\uFFFD \U0001F9C0 \\udce9 \uFFFD");
  EXPECT_EQ(ParseErrorFile(R"({"message": "torn \u)"), std::nullopt);
  EXPECT_EQ(ParseErrorFile("{\"message\": \"torn \\"), std::nullopt);
}

TEST(ErrorFileTest, RejectsMalformedErrorFiles) {
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), std::string("null"),
        std::string("\xff\xfe"), std::string(kNested).substr(0, 60), std::string(R"({"message": 3})"),
        std::string(R"({"message": {"message": "m"}})"), std::string(R"({"message": {"extraInfo": {}}})"),
        std::string(R"({"message": {"extraInfo": {"timestamp": "soon"}}})"),
        std::string(R"({"message": "m", "timestamp": []})"),
        std::string(R"({"message": "m", "timestamp": 1e300})"),
        std::string("{\"message\": \"\xff\", \"timestamp\": 1}"), std::string(R"({"message": "m"} trailing)"),
        std::string(100'000, '[')}) {
    EXPECT_EQ(ParseErrorFile(json), std::nullopt) << json.substr(0, 80);
  }
  EXPECT_EQ(ReadErrorFile("/no/such/file"), std::nullopt);
  EXPECT_EQ(ReadErrorFile(testing::TempDir()), std::nullopt);
}

TEST(ErrorFileTest, RejectsSpecialFilesWithoutBlocking) {
  const std::string fifo = absl::StrCat(testing::TempDir(), "/fifo.json");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ReadErrorFile(fifo), std::nullopt) << "a FIFO without a writer must not be read";
  EXPECT_EQ(ReadErrorFile("/dev/zero"), std::nullopt);
}

TEST(ErrorFileTest, WritesTheRootCausesErrorWithItsExitCode) {
  const std::string path = absl::StrCat(testing::TempDir(), "/out.json");
  std::ofstream(path) << "older";
  ASSERT_TRUE(WriteErrorFile(path, *ParseErrorFile(kNested), 17).ok());
  EXPECT_EQ(Contents(path),
            R"({"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback:\n  x", )"
            R"("timestamp": "1795248899"}, "errorCode": 17}})");
  ASSERT_TRUE(WriteErrorFile(path, *ParseErrorFile(R"({"message": "plain", "timestamp": 7})"), 17).ok());
  EXPECT_EQ(Contents(path), R"({"message": "plain", "timestamp": 7})");
}

TEST(ErrorFileTest, WriteErrorsNameThePath) {
  const absl::Status status = WriteErrorFile("/no/such/dir/x.json", *ParseErrorFile(kNested), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/dir/x.json"));
}

// The limit on the file size simulates a full disk.
TEST(ErrorFileTest, AFailedReplacementKeepsTheOldFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/kept.json");
  std::ofstream(path) << "older";
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteErrorFile(path, *ParseErrorFile(kNested), 17);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(Contents(path), "older");
}

TEST(ErrorFileTest, WritesToAFifoWithoutReplacingIt) {
  const std::string fifo = absl::StrCat(testing::TempDir(), "/fifo_with_reader");
  const std::string link = absl::StrCat(testing::TempDir(), "/link_to_it");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(symlink(fifo.c_str(), link.c_str()), 0);
  EXPECT_THAT(std::string(WriteErrorFile(link, "no reader", 1).message()), HasSubstr(link));
  const UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  EXPECT_TRUE(WriteErrorFile(link, "x", 1).ok());
  char text[200];
  const ssize_t n = read(reader.get(), text, sizeof text);
  EXPECT_EQ(std::string(text, n), R"({"message": {"message": "x", "extraInfo": {"py_callstack": "x", )"
                                  R"("timestamp": "1"}}})");
  struct stat info;
  ASSERT_EQ(stat(fifo.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
}

// In a container, /dev/termination-log is a mounted file.
TEST(ErrorFileTest, OverwritesAMountedFileInPlace) {
  const std::string path = absl::StrCat(testing::TempDir(), "/mounted.json");
  std::ofstream(path) << std::string(1000, 'x');
  const absl::Status own = UseOwnMounts();
  if (!own.ok() || mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "cannot mount a file on this system: " << own;
  }
  EXPECT_EQ(WriteErrorFile(path, "x", 1), absl::OkStatus());
  EXPECT_THAT(Contents(path), AllOf(StartsWith("{\"message\""), EndsWith("}}}")));
  EXPECT_EQ(umount(path.c_str()), 0);
}

}  // namespace
}  // namespace ddprun
