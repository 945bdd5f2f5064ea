#include "launcher/report/python_json.h"

#include <boost/json/parse.hpp>
#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

// Each expected text is the output of json.dumps in Python 3.11.
TEST(PythonJsonTest, FormatsStrings) {
  EXPECT_EQ(PythonString(""), R"("")");
  EXPECT_EQ(PythonString("a \"b\" \\ /"), R"("a \"b\" \\ /")");
  EXPECT_EQ(PythonString("\b\f\n\r\t\x01\x7f"), "\"\\b\\f\\n\\r\\t\\u0001\x7f\"");
  EXPECT_EQ(PythonString("k\xc3\xa4se \xe2\x82\xac \xf0\x9f\xa7\x80"), R"("k\u00e4se \u20ac \ud83e\uddc0")");
}

TEST(PythonJsonTest, ReplacesInvalidUtf8) {
  const char* const bad[] = {
      "\x80",        "\xff", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xf4\x90\x80\x80",
      "\xe0\x80\xaf"};
  for (const char* text : bad) {
    const std::string json = PythonString(std::string("a") + text + "b");
    EXPECT_EQ(json.substr(0, 8), "\"a\\ufffd") << json;
    EXPECT_EQ(json.substr(json.size() - 2), "b\"") << json;
  }
}

TEST(PythonJsonTest, FormatsFloats) {
  EXPECT_EQ(PythonFloat(0), "0.0");
  EXPECT_EQ(PythonFloat(-3), "-3.0");
  EXPECT_EQ(PythonFloat(292.70617099973606), "292.70617099973606");
  EXPECT_EQ(PythonFloat(1795248899.5), "1795248899.5");
  EXPECT_EQ(PythonFloat(1e-05), "1e-05");
  EXPECT_EQ(PythonFloat(0.0001), "0.0001");
  EXPECT_EQ(PythonFloat(100000), "100000.0");
  EXPECT_EQ(PythonFloat(1e15), "1000000000000000.0");
  EXPECT_EQ(PythonFloat(1e16), "1e+16");
  EXPECT_EQ(PythonFloat(-1.5e300), "-1.5e+300");
  EXPECT_EQ(PythonFloat(5e-324), "5e-324");
  EXPECT_EQ(PythonFloat(0.00012345678901234567), "0.00012345678901234567");
  EXPECT_EQ(PythonFloat(9999999999999998), "9999999999999998.0");
  EXPECT_EQ(PythonFloat(-HUGE_VAL), "-1e999");
  EXPECT_EQ(PythonDumps(boost::json::parse("0e3000")), "0.0");
}

TEST(PythonJsonTest, FormatsValues) {
  constexpr char kText[] =
      R"({"message": {"message": "x", "extraInfo": {"timestamp": "17"}}, "n": [1, -2, 2.5, true, false, null, {}, []]})";
  EXPECT_EQ(PythonDumps(boost::json::parse(kText)), kText);
}

}  // namespace
}  // namespace ddprun
