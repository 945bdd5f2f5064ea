#include "launcher/logs/worker_stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/logs/pipe_peek.h"

namespace ddprun {
namespace {

// Maximum number of reads in Close. This is enough to empty a full pipe.
constexpr int kLastReads = 32;
// Smaller amounts are copied instead of moved. The value is larger than PipePeek::kMaxBytes, so that PipePeek
// returns enough bytes for the whole tail.
constexpr size_t kLeastMoved = 32 << 10;
static_assert(kLeastMoved > PipePeek::kMaxBytes && PipePeek::kMaxBytes > kTailBytes);

}  // namespace

WorkerStream::WorkerStream(boost::asio::io_context& io, UniqueFd pipe, Sinks sinks,
                           std::function<void()> closed)
    : pipe_(io, pipe.Release()),
      sinks_(std::move(sinks)),
      closed_(std::move(closed)),
      writer_(sinks_.console == nullptr ? OutputSink::kLauncher : sinks_.console->NewWriter()),
      hold_(io) {
  if (sinks_.prefix) prefixer_.emplace(*sinks_.prefix);
  AwaitBytes();
}

WorkerStream::~WorkerStream() {
  alive_.End();
  if (moving_) sinks_.console->FinishMoveByCopy();
}

void WorkerStream::AwaitBytes() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   alive_.Guard([this](const boost::system::error_code& error) {
                     if (!error) OnReadable();
                   }));
}

void WorkerStream::OnReadable() {
  if (!pipe_.is_open()) return;
  if (MayMove() && !sinks_.console->idle()) {
    return sinks_.console->WhenIdle(alive_.Guard([this] { TakeOrMove(); }));
  }
  if (!CanTake()) {
    stalled_ = true;
    return AwaitRoom();
  }
  TakeOrMove();
}

void WorkerStream::TakeOrMove() {
  if (!pipe_.is_open()) return;
  if (MayMove() && MoveLines()) return;
  if (Take()) return AwaitBytes();
  End();
  if (sinks_.disk == nullptr) return OnClosed();
  sinks_.disk->Do([] {}, alive_.Guard([this] { OnClosed(); }));
}

bool WorkerStream::MayMove() const {
  const bool shown_alone = sinks_.console != nullptr && sinks_.file == nullptr && !prefixer_;
  return flows_ && shown_alone && sinks_.console->is_pipe();
}

bool WorkerStream::CanTake() const {
  if (!DiskHasRoom()) return false;
  if (ConsoleHasRoom()) return true;
  return in_memory_ == 0 && sinks_.file != nullptr && sinks_.file->Keeps(Chunk::kMaxBytes);
}

bool WorkerStream::MoveLines() {
  if (!sinks_.console->CanMove()) return false;
  thread_local PipePeek peek;
  size_t all = 0;
  const absl::string_view last = peek.Look(pipe_.native_handle(), all);
  const size_t end = EndOfLastLine(last);
  if (all < kLeastMoved || end < kTailBytes) return false;
  moved_end_ = std::string(last.substr(0, end));
  std::string before;
  holder_.Finish(before);
  const auto moved = alive_.Guard([this] {
    OnMoved();
    AwaitBytes();
  });
  moving_ = true;
  if (sinks_.console->Move(before, pipe_.native_handle(), all - last.size() + end, moved)) moved();
  return true;
}

void WorkerStream::OnMoved() {
  moving_ = false;
  if (sinks_.tail != nullptr) sinks_.tail->Append(moved_end_);
}

// Reads once. Returns false at the end of the stream or after an error.
bool WorkerStream::Take() {
  Chunk chunk;
  const ssize_t n = ReadChunk(pipe_.native_handle(), chunk, sinks_.file != nullptr);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  flows_ = static_cast<size_t>(n) >= kLeastMoved;
  Pass(std::move(chunk));
  return true;
}

void WorkerStream::Pass(Chunk chunk) {
  const absl::string_view bytes = chunk.view();
  if (sinks_.tail != nullptr) sinks_.tail->Append(bytes);
  if (sinks_.filtered) sinks_.filtered->Feed(bytes);
  const bool has_room = ConsoleHasRoom();
  const bool later = !has_room && sinks_.file != nullptr && sinks_.file->Keeps(bytes.size());
  if (!has_room && !later && behind()) DropBacklog();
  if (sinks_.console != nullptr && !later) Show(bytes);
  if (sinks_.file == nullptr) return Recycle(std::move(chunk));
  auto shared = std::make_shared<Chunk>(std::move(chunk));
  if (later) unsaved_.push_back(shared);
  sinks_.file->Write(std::move(shared), alive_.Guard([this, later](const QueuedLog::Range& range) {
    if (later) OnSaved(range);
  }));
  if (later) AwaitRoom();
}

// Called when the first element of unsaved_ has been written. `range` is the part of the element that is in
// the file.
void WorkerStream::OnSaved(const QueuedLog::Range& range) {
  if (outdated_saves_ > 0) {
    --outdated_saves_;
    return;
  }
  std::shared_ptr<Chunk> chunk = std::move(unsaved_.front());
  unsaved_.pop_front();
  auto* const last = lacking_.empty() ? nullptr : std::get_if<QueuedLog::Range>(&lacking_.back());
  if (range.size < static_cast<int64_t>(chunk->size)) {
    ++in_memory_;
    lacking_.emplace_back(std::move(chunk));
  } else if (last != nullptr && last->rotations == range.rotations &&
             last->begin + last->size == range.begin) {
    last->size += range.size;
  } else {
    lacking_.emplace_back(range);
  }
  AwaitRoom();
}

void WorkerStream::Show(absl::string_view bytes) {
  const bool held = HoldsLine();
  bool passed = false;
  if (prefixer_) {
    sinks_.console->Write([&](std::string& out) { prefixer_->Feed(bytes, out); }, writer_);
  } else {
    std::string before;
    const absl::string_view lines = holder_.Pass(bytes, before);
    passed = !before.empty() || !lines.empty();
    sinks_.console->Write(before, lines, writer_);
  }
  if (!HoldsLine()) return;
  if (prefixer_ || passed || !held) held_since_ = std::chrono::steady_clock::now();
  if (!holding_) AwaitEndOfLine();
}

void WorkerStream::FinishLines() {
  if (sinks_.console == nullptr) return;
  sinks_.console->Write(
      [this](std::string& out) { prefixer_ ? prefixer_->Finish(out) : holder_.Finish(out); }, writer_);
}

void WorkerStream::AwaitEndOfLine() {
  holding_ = true;
  hold_.expires_at(held_since_ + kHoldLimit);
  hold_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    holding_ = false;
    if (error || !HoldsLine()) return;
    const TimePoint now = std::chrono::steady_clock::now();
    // The worker may already have completed the line in output that has not been read or shown.
    if (stalled_ || behind() || HasUnread()) held_since_ = now;
    if (now < held_since_ + kHoldLimit) return AwaitEndOfLine();
    FinishLines();
  }));
}

bool WorkerStream::HasUnread() {
  boost::asio::posix::stream_descriptor::bytes_readable bytes;
  boost::system::error_code error;
  pipe_.io_control(bytes, error);
  return !error && bytes.get() > 0;
}

void WorkerStream::AwaitRoom() {
  if (!DiskHasRoom() && !std::exchange(awaiting_disk_, true)) {
    sinks_.disk->WhenRoom(alive_.Guard([this] {
      awaiting_disk_ = false;
      Resume();
    }));
  }
  if (!ConsoleHasRoom() && !reading_ && !std::exchange(awaiting_console_, true)) {
    sinks_.console->WhenRoom(alive_.Guard([this] {
      awaiting_console_ = false;
      if (behind() && !reading_) CatchUp();
      Resume();
    }));
  }
}

void WorkerStream::Resume() {
  if (std::exchange(stalled_, false)) OnReadable();
}

// Shows only one piece, so that other streams can write too.
void WorkerStream::CatchUp() {
  if (lacking_.empty()) {  // Show the chunk from memory, without waiting for the disk.
    Show(unsaved_.front()->view());
    unsaved_.pop_front();
    ++outdated_saves_;
    return OnShown();
  }
  if (auto* const chunk = std::get_if<std::shared_ptr<Chunk>>(&lacking_.front())) {
    Show((*chunk)->view());
    lacking_.pop_front();
    --in_memory_;
    return OnShown();
  }
  QueuedLog::Range piece = std::get<QueuedLog::Range>(lacking_.front());
  piece.size = std::min<int64_t>(piece.size, Chunk::kMaxBytes);
  reading_ = true;
  sinks_.file->Read(
      piece, alive_.Guard([this, wanted = piece.size](const std::string& bytes) { OnRead(wanted, bytes); }));
}

void WorkerStream::OnRead(int64_t wanted, const std::string& bytes) {
  if (outdated_reads_ > 0) {
    --outdated_reads_;
    return;
  }
  reading_ = false;
  if (static_cast<int64_t>(bytes.size()) < wanted) {  // The file was rotated or truncated.
    DropBacklog();
  } else {
    Show(bytes);
    auto& range = std::get<QueuedLog::Range>(lacking_.front());
    range.begin += wanted;
    range.size -= wanted;
    if (range.size == 0) lacking_.pop_front();
  }
  OnShown();
  Resume();
}

void WorkerStream::OnShown() {
  if (behind()) return AwaitRoom();
  if (pipe_.is_open()) return;
  hold_.cancel();
  FinishLines();
  if (auto shown = std::exchange(shown_, nullptr)) shown();
}

void WorkerStream::DropBacklog() {
  int64_t lost = 0;
  for (const auto& item : lacking_) {
    const auto* const range = std::get_if<QueuedLog::Range>(&item);
    lost +=
        range != nullptr ? range->size : static_cast<int64_t>(std::get<std::shared_ptr<Chunk>>(item)->size);
  }
  for (const std::shared_ptr<Chunk>& chunk : unsaved_) lost += static_cast<int64_t>(chunk->size);
  outdated_saves_ += static_cast<int>(unsaved_.size());
  if (std::exchange(reading_, false)) ++outdated_reads_;
  lacking_.clear();
  unsaved_.clear();
  in_memory_ = 0;
  Show(absl::StrCat("\n[ddprun: ", lost, " bytes are not shown here; see the log file]\n"));
}

void WorkerStream::Close() {
  closed_ = nullptr;
  if (!pipe_.is_open()) return;
  if (moving_) {
    sinks_.console->FinishMoveByCopy();
    OnMoved();
  }
  for (int i = 0; i < kLastReads && Take(); ++i) {
  }
  End();
}

void WorkerStream::End() {
  boost::system::error_code ignored;
  pipe_.close(ignored);
  if (sinks_.filtered) sinks_.filtered->Finish();
  sinks_.filtered.reset();
  sinks_.tail = nullptr;
  if (!behind()) OnShown();
}

void WorkerStream::OnClosed() {
  saved_ = true;
  if (closed_) closed_();
}

}  // namespace ddprun
