#include "worker_sdk/failure/error_file.h"

#include <boost/json.hpp>
#include <chrono>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace ddprun {

bool IsOwnFailure(const absl::Status& error) {
  return !error.ok() && !absl::IsUnavailable(error) && !absl::IsAborted(error) &&
         !absl::IsDeadlineExceeded(error);
}

std::string LastWords(const absl::Status& error) {
  const bool elsewhere = !error.ok() && !IsOwnFailure(error);
  return absl::StrCat(error.message(), elsewhere ? " " : "", elsewhere ? kCauseIsElsewhere : "");
}

std::string ErrorFileJson(const absl::Status& error, int64_t time_s) {
  const std::string text(error.message());
  boost::json::object extra, message, root;
  extra["py_callstack"] = text;
  extra["timestamp"] = absl::StrCat(time_s);
  message["message"] = text;
  message["extraInfo"] = std::move(extra);
  root["message"] = std::move(message);
  return boost::json::serialize(root);
}

void LeaveErrorFile(const std::string& path, const absl::Status& error) {
  if (path.empty() || !IsOwnFailure(error)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream(path, std::ios::trunc)
      << ErrorFileJson(error, std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace ddprun
