#include "launcher/logs/worker_stream.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// At the end of a drain, what a worker can have left in its pipe, and more.
constexpr int kLastReads = 32;

// Nothing is kept in it between calls. All streams are read in one thread.
char* Buffer() {
  thread_local const std::unique_ptr<char[]> buffer(new char[kReadBytes]);
  return buffer.get();
}

}  // namespace

WorkerStream::WorkerStream(boost::asio::io_context& io, UniqueFd pipe, Ways ways,
                           std::function<void()> closed)
    : pipe_(io, pipe.Release()), ways_(std::move(ways)), closed_(std::move(closed)), hold_(io) {
  if (ways_.prefix) prefixer_.emplace(*ways_.prefix);
  AwaitBytes();
}

void WorkerStream::AwaitBytes() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   alive_.Guard([this](const boost::system::error_code& error) {
                     if (!error) OnReadable();
                   }));
}

void WorkerStream::OnReadable() {
  if (closed()) return;
  if (!CanTake()) {
    stalled_ = true;
    return AwaitRoom();
  }
  if (Take()) return AwaitBytes();
  End();
  closed_();
}

bool WorkerStream::CanTake() const {
  if (ways_.console == nullptr || (!behind() && !ways_.console->full())) return true;
  return unsaved_.empty() && ways_.file != nullptr && ways_.file->Keeps(kReadBytes);
}

// Reads once. False at the end of the stream.
bool WorkerStream::Take() {
  const ssize_t n = read(pipe_.native_handle(), Buffer(), kReadBytes);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  Pass(absl::string_view(Buffer(), static_cast<size_t>(n)));
  return true;
}

void WorkerStream::Pass(absl::string_view bytes) {
  if (ways_.tail != nullptr) ways_.tail->Append(bytes);
  if (ways_.filtered) ways_.filtered->Feed(bytes);
  const bool has_room = ways_.console == nullptr || (!behind() && !ways_.console->full());
  const bool later = !has_room && ways_.file != nullptr && ways_.file->Keeps(bytes.size());
  if (!later && behind()) GiveUp();
  const int64_t at = ways_.file == nullptr ? 0 : ways_.file->size();
  const size_t saved = ways_.file == nullptr ? 0 : ways_.file->Write(bytes);
  if (later) {
    if (!behind_at_ && saved > 0) behind_at_ = at;
    unsaved_.append(bytes.data() + saved, bytes.size() - saved);
    AwaitRoom();
  } else if (ways_.console != nullptr) {
    Show(bytes);
  }
}

void WorkerStream::Show(absl::string_view bytes) {
  if (!prefixer_) return ways_.console->Write(bytes);
  ways_.console->Write([&](std::string& out) { prefixer_->Feed(bytes, out); });
  fed_ = std::chrono::steady_clock::now();
  if (prefixer_->holds() && !holding_) AwaitEndOfLine();
}

void WorkerStream::AwaitEndOfLine() {
  holding_ = true;
  hold_.expires_after(kHoldLimit);
  hold_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    holding_ = false;
    if (error || !prefixer_->holds()) return;
    // The worker is silent, and does not only wait for us.
    const bool silent = !stalled_ && !behind() && std::chrono::steady_clock::now() - fed_ >= kHoldLimit;
    if (!silent) return AwaitEndOfLine();
    ways_.console->Write([&](std::string& out) { prefixer_->Finish(out); });
  }));
}

void WorkerStream::AwaitRoom() {
  if (std::exchange(awaiting_room_, true)) return;
  ways_.console->WhenRoom(alive_.Guard([this] {
    awaiting_room_ = false;
    OnRoom();
  }));
}

void WorkerStream::OnRoom() {
  if (behind()) {
    CatchUp();
    if (behind()) {
      AwaitRoom();
    } else if (closed()) {
      End();
      if (auto shown = std::exchange(shown_, nullptr)) shown();
    }
  }
  if (std::exchange(stalled_, false)) OnReadable();
}

// One piece, so that other streams have their turn.
void WorkerStream::CatchUp() {
  if (behind_at_) {
    const int64_t left = ways_.file->size() - *behind_at_;
    const ssize_t n =
        ways_.file->Read(*behind_at_, Buffer(), static_cast<size_t>(std::min<int64_t>(left, kReadBytes)));
    if (n <= 0) return GiveUp();  // somebody has cut the file
    *behind_at_ += n;
    Show(absl::string_view(Buffer(), static_cast<size_t>(n)));
    if (n == left) behind_at_.reset();
  } else {
    Show(std::exchange(unsaved_, ""));
  }
}

// The rest of what the console lacks does not come there any more.
void WorkerStream::GiveUp() {
  const int64_t lost =
      (behind_at_ ? ways_.file->size() - *behind_at_ : 0) + static_cast<int64_t>(unsaved_.size());
  behind_at_.reset();
  unsaved_.clear();
  Show(absl::StrCat("\n[ddprun: ", lost, " bytes are not shown here, see the log file]\n"));
}

void WorkerStream::Close() {
  if (closed()) return;
  for (int i = 0; i < kLastReads && Take(); ++i) {
  }
  End();
}

void WorkerStream::End() {
  boost::system::error_code ignored;
  pipe_.close(ignored);
  if (ways_.filtered) ways_.filtered->Finish();
  ways_.filtered.reset();
  ways_.tail = nullptr;
  if (behind()) return;
  hold_.cancel();
  if (prefixer_ && ways_.console != nullptr) {
    ways_.console->Write([&](std::string& out) { prefixer_->Finish(out); });
  }
  ways_.file.reset();
}

}  // namespace ddprun
