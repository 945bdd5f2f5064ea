#include "ddprun/status.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(StatusTest, IsOkByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().message(), "");
  EXPECT_EQ(OkStatus().ToString(), "OK");
  EXPECT_TRUE(Status(StatusCode::kOk, "ignored") == OkStatus());
}

TEST(StatusTest, HasACodeAndAMessage) {
  const Status status = UnavailableError("rank 3 of round 7 is gone");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(IsUnavailable(status));
  std::ostringstream out;
  out << status;
  EXPECT_EQ(out.str(), "UNAVAILABLE: rank 3 of round 7 is gone");
}

TEST(StatusTest, UpdateKeepsTheFirstError) {
  Status status;
  status.Update(AbortedError("first"));
  status.Update(InternalError("second"));
  status.Update(OkStatus());
  EXPECT_EQ(status, AbortedError("first"));
}

TEST(StatusTest, ContextIsPutBeforeTheMessage) {
  EXPECT_EQ(WithContext(NotFoundError("no file"), "/tmp/x"), NotFoundError("/tmp/x: no file"));
  EXPECT_EQ(WithContext(NotFoundError("no file"), ""), NotFoundError("no file"));
  EXPECT_EQ(WithContext(OkStatus(), "context"), OkStatus());
}

TEST(StatusTest, ErrnoHasACodeAndAText) {
  EXPECT_EQ(ErrnoToStatus(ENOENT, "open"), NotFoundError("open: No such file or directory"));
  EXPECT_EQ(ErrnoToStatus(ENOSPC, "write").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoToStatus(ECONNRESET, "read").code(), StatusCode::kUnavailable);
}

TEST(StatusTest, EveryCodeHasAName) {
  for (int code = 1; code <= 15; ++code) {
    EXPECT_EQ(std::string(NameOf(StatusCode{code})) == "UNKNOWN", code == 2) << code;
  }
}

Status Fails(bool fails) { return fails ? AbortedError("inner") : OkStatus(); }
Status Returns(bool fails) {
  DDPRUN_RETURN_IF_ERROR(Fails(fails));
  DDPRUN_RETURN_IF_ERROR(Fails(fails), "never reached after an error");
  return OkStatus();
}
StatusOr<std::unique_ptr<int>> Pointer(bool fails) {
  if (fails) return NotFoundError("none");
  return std::make_unique<int>(7);
}
StatusOr<std::string> Text(bool fails) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<int> number, Pointer(fails), "a number");
  if (*number != 7) return "wrong";
  return "seven";
}

TEST(StatusTest, MacrosReturnErrorsAndAssignValues) {
  EXPECT_EQ(Returns(true), AbortedError("inner"));
  EXPECT_EQ(Returns(false), OkStatus());
  EXPECT_EQ(Text(true).status(), NotFoundError("a number: none"));
  EXPECT_EQ(Text(false).value(), "seven");
}

TEST(StatusOrTest, HoldsAValueOrAnError) {
  StatusOr<std::string> text = Text(false);
  EXPECT_TRUE(text.ok());
  EXPECT_EQ(text->size(), 5u);
  EXPECT_EQ(*std::move(text), "seven");
  EXPECT_EQ(Text(true).value_or("fallback"), "fallback");
  EXPECT_FALSE(StatusOr<int>(OkStatus()).ok()) << "an OK status without a value must be an error";
}

StatusOr<std::optional<int>> Nothing() { return std::nullopt; }
StatusOr<std::vector<int>> Local() {
  std::vector<int> numbers = {1, 2};
  return numbers;
}
StatusOr<std::unique_ptr<int>> MovedLocal() {
  auto pointer = std::make_unique<int>(3);
  return pointer;
}

TEST(StatusOrTest, AnEmptyOptionalIsAValue) {
  const StatusOr<std::optional<int>> nothing = Nothing();
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(*nothing, std::nullopt);
}

TEST(StatusOrTest, TakesLocalVariables) {
  EXPECT_EQ(Local()->size(), 2u);
  EXPECT_EQ(**MovedLocal(), 3);
}

TEST(StatusOrTest, NeverHasAnOkStatusWithoutAValue) {
  StatusOr<int> error = AbortedError("why");
  EXPECT_EQ(std::move(error).status(), AbortedError("why"));
  EXPECT_EQ(error.status(), AbortedError("why"));
}

TEST(StatusOrDeathTest, AbortsIfTheValueOfAnErrorIsUsed) {
  const StatusOr<std::string> error = AbortedError("no text");
  EXPECT_DEATH((void)error.value(), "the value of a StatusOr was used, but it is an error: ABORTED: no text");
}

}  // namespace
}  // namespace ddprun
