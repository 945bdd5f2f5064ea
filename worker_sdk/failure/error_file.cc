#include "worker_sdk/failure/error_file.h"

#include <chrono>
#include <fstream>

#include "ddprun/status.h"
#include "worker_sdk/core/json.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

bool IsOwnFailure(const Status& error) {
  return !error.ok() && !IsUnavailable(error) && !IsAborted(error) && !IsDeadlineExceeded(error);
}

std::string LastWords(const Status& error) {
  const bool elsewhere = !error.ok() && !IsOwnFailure(error);
  return StrCat(error.message(), elsewhere ? " " : "", elsewhere ? kCauseIsElsewhere : "");
}

std::string ErrorFileJson(const Status& error, int64_t time_s) {
  Json root;
  Json& message = root["message"];
  message["message"] = error.message();
  message["extraInfo"]["py_callstack"] = error.message();
  message["extraInfo"]["timestamp"] = StrCat(time_s);
  return ToText(root);
}

void LeaveErrorFile(const std::string& path, const Status& error) {
  if (path.empty() || !IsOwnFailure(error)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream(path, std::ios::trunc)
      << ErrorFileJson(error, std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace ddprun
