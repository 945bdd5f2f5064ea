#include "launcher/workers/notice_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/time.h"
#include "base/uuid.h"
#include "launcher/report/python_json.h"
#include "os/files.h"

namespace ddprun {
namespace {

constexpr Duration kOpenLimit = seconds(2);

std::string PrefixOfPaths() {
  const absl::StatusOr<std::string> dir = TemporaryDirectory();
  return dir.ok() ? absl::StrCat(*dir, "/ddprun_notice_", RandomUuid()) : "";
}

std::string TextOf(const WorkerStop& stop) {
  const double stop_at = absl::ToDoubleSeconds(
      (absl::Now() + absl::FromChrono(stop.by - std::chrono::steady_clock::now())) - absl::UnixEpoch());
  return absl::StrFormat("{\"stop_at\": %.3f, \"reason\": %s}\n", stop_at, PythonString(stop.reason));
}

absl::StatusOr<UniqueFd> Replace(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  const auto fail = [&](int error) {
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat("cannot write the notice for the workers to ", path));
  };
  UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) return fail(errno);
  const ssize_t n = write(file.get(), text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) return fail(n < 0 ? errno : ENOSPC);
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail(errno);
  UniqueFd handle(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!handle) return fail(errno);
  return handle;
}

}  // namespace

NoticeFile::NoticeFile(boost::asio::io_context& io, Written written)
    : written_(std::move(written)), limit_(io), disk_(io) {}

void NoticeFile::Open(std::function<void()> done) {
  opened_ = std::move(done);
  const auto prefix = std::make_shared<std::string>();
  disk_.Do([prefix] { *prefix = PrefixOfPaths(); },
           [this, prefix] {
             if (opened_ != nullptr) prefix_ = *prefix;
             Opened();
           });
  limit_.expires_after(kOpenLimit);
  limit_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Opened();
  });
}

void NoticeFile::Opened() {
  limit_.cancel();
  if (const std::function<void()> opened = std::exchange(opened_, nullptr)) opened();
}

std::string NoticeFile::path() const { return prefix_.empty() ? "" : absl::StrCat(prefix_, ".", round_); }

void NoticeFile::BeginRound() {
  if (std::exchange(exists_, false)) disk_.Do([path = path()] { unlink(path.c_str()); });
  ++round_;
}

void NoticeFile::Write(const WorkerStop& stop) {
  if (prefix_.empty()) return;
  exists_ = true;
  const auto file = std::make_shared<absl::StatusOr<UniqueFd>>(absl::UnknownError(""));
  disk_.Do([path = path(), text = TextOf(stop), file] { *file = Replace(path, text); },
           [this, file] { written_(file->ok() ? absl::StatusOr<int>((*file)->get()) : file->status()); });
}

}  // namespace ddprun
