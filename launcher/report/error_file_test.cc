#include "launcher/report/error_file.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kNested[] =
    R"({"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback:\n  x", "timestamp": "1795248899"}}})";

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ErrorFileTest, BothShapes) {
  EXPECT_EQ(ParseErrorFile(kNested), (WorkerError{"Traceback:\n  x", 1795248899, kNested}));
  const struct {
    const char* json;
    const char* text;
    int64_t timestamp;
  } kCases[] = {
      {R"({"message": {"message": "m", "extraInfo": {"timestamp": 5}}})", "m", 5},
      {R"({"message": {"extraInfo": {"timestamp": "5"}}})", "<N/A>", 5},
      {R"({"message": "plain", "timestamp": 7})", "plain", 7},
      {R"({"message": "plain", "timestamp": "7"})", "plain", 7},
      {R"({"message": "plain", "timestamp": 7.9})", "plain", 7},
      {R"({"message": "plain"})", "plain", 0},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(ParseErrorFile(c.json), (WorkerError{c.text, c.timestamp, c.json})) << c.json;
}

TEST(ErrorFileTest, EverythingElseIsNone) {
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

TEST(ErrorFileTest, TheRootCausesErrorIsPassedOnWithItsExitCode) {
  const std::string path = absl::StrCat(testing::TempDir(), "/out.json");
  std::ofstream(path) << "older";
  ASSERT_TRUE(WriteErrorFile(path, *ParseErrorFile(kNested), 17).ok());
  EXPECT_EQ(Contents(path),
            R"({"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback:\n  x", )"
            R"("timestamp": "1795248899"}, "errorCode": 17}})");
  ASSERT_TRUE(WriteErrorFile(path, *ParseErrorFile(R"({"message": "plain", "timestamp": 7})"), 17).ok());
  EXPECT_EQ(Contents(path), R"({"message": "plain", "timestamp": 7})");
}

TEST(ErrorFileTest, WhatCannotBeWrittenIsNamedAndLeavesTheOldFile) {
  const absl::Status status = WriteErrorFile("/no/such/dir/x.json", *ParseErrorFile(kNested), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/dir/x.json"));
}

}  // namespace
}  // namespace ddprun
