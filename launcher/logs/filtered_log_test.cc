#include "launcher/logs/filtered_log.h"

#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

class FilteredLogTest : public testing::Test {
 protected:
  FilteredLogTest() : path_(absl::StrCat(testing::TempDir(), "/XXXXXX")) {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    path_ += "/filtered_stdout.log";
  }
  std::shared_ptr<FilteredLog> Open(std::vector<std::string> filters) {
    return *FilteredLog::Open(path_, std::move(filters), 0, [](const absl::Status& s) { FAIL() << s; });
  }
  std::string Contents() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string path_;
};

TEST_F(FilteredLogTest, LinesOfAllStreamsWithAnyOfTheTexts) {
  const auto log = Open({"apple", "or"});
  FilteredStream zero(log, "[default0]:"), one(log, "[default1]:");
  zero.Feed("an apple\na pear\n");
  one.Feed("oranges\r\napp");
  zero.Feed("more\n");
  EXPECT_EQ(Contents(), "[default0]:an apple\n[default1]:oranges\n[default0]:more\n")
      << "as soon as they end";
  one.Feed("le pie");
  zero.Finish();
  one.Finish();
  EXPECT_EQ(Contents(), "[default0]:an apple\n[default1]:oranges\n[default0]:more\n[default1]:apple pie\n");
}

TEST_F(FilteredLogTest, ThePrefixIsNotLookedInto) {
  FilteredStream stream(Open({"default"}), "[default0]:\n");
  stream.Feed("x\nthe default\n");
  EXPECT_EQ(Contents(), "[default0]:\nthe default\n");
}

TEST_F(FilteredLogTest, AnEmptyFilterIsInEachLine) {
  FilteredStream stream(Open({""}), "p:");
  stream.Feed("x\n\n");
  EXPECT_EQ(Contents(), "p:x\np:\n");
}

}  // namespace
}  // namespace ddprun
