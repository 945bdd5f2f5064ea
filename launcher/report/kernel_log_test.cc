#include "launcher/report/kernel_log.h"

#include <stdlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class KernelLogTest : public testing::Test {
 protected:
  KernelLogTest() {
    dir_ = absl::StrCat(testing::TempDir(), "/kmsgXXXXXX");
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    Add("6,1,1,-;old\n6,2,1,-;old, and incomplete");
  }
  std::string path() const { return dir_ + "/kmsg"; }
  void Add(const std::string& text) const { std::ofstream(path(), std::ios::app) << text; }
  static std::vector<std::string> New(KernelLog& log) {
    std::vector<std::string> texts;
    log.ReadNew([&](absl::string_view text) { texts.emplace_back(text); });
    return texts;
  }

  std::string dir_;
};

TEST_F(KernelLogTest, ReadsEachNewRecordOnce) {
  KernelLog log(path());
  ASSERT_TRUE(log.status().ok()) << log.status();
  EXPECT_THAT(New(log), IsEmpty());
  Add("\n6,3,1,-;first\n3,4,1,-;a;b, c\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0;x\n6,5,1,-;last\n");
  EXPECT_THAT(New(log), ElementsAre("first", "a;b, c", "last"));
  EXPECT_THAT(New(log), IsEmpty());
}

TEST_F(KernelLogTest, WaitsForTheEndOfALine) {
  KernelLog log(path());
  Add("\n6,3,1");
  EXPECT_THAT(New(log), IsEmpty());
  Add(",-;te");
  EXPECT_THAT(New(log), IsEmpty());
  Add("xt\n6,4,1,-;next\n");
  EXPECT_THAT(New(log), ElementsAre("text", "next"));
}

TEST_F(KernelLogTest, SkipsGarbageAndLimitsLines) {
  KernelLog log(path());
  Add(absl::StrCat("\n\n;\nno prefix\n", std::string(1, '\0'), "\n6,1,1,-;", std::string(1 << 20, 'x'),
                   "\n6,2,1,-;next\n"));
  const std::vector<std::string> texts = New(log);
  ASSERT_THAT(texts, SizeIs(3));
  EXPECT_EQ(texts[0], "");
  EXPECT_LE(texts[1].size(), size_t{16} << 10);
  EXPECT_EQ(texts[2], "next");
}

TEST_F(KernelLogTest, SaysWhyItCannotBeRead) {
  KernelLog missing(dir_ + "/no/such");
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/no/such: No such file"));
  EXPECT_THAT(New(missing), IsEmpty());
  EXPECT_EQ(missing.fd(), -1);
}

}  // namespace
}  // namespace ddprun
