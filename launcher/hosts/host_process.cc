#include "launcher/hosts/host_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/hosts/start_message.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxEarlyLine = 64 << 10;

struct Pipe {
  UniqueFd read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot open a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// The last line of the text that is not empty, without control characters at its ends.
std::string LastLine(const std::string& text) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(text, absl::ByAnyChar("\r\n"))) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty()) last = std::string(stripped);
  }
  return last;
}

}  // namespace

HostProcess::HostProcess(asio::io_context& io, Console& console, std::string message,
                         std::function<void()> started)
    : io_(io),
      console_(console),
      line_(io),
      unsent_(std::move(message)),
      early_(io),
      on_started_(std::move(started)) {}

absl::StatusOr<std::unique_ptr<HostProcess>> HostProcess::Start(asio::io_context& io, Console& console,
                                                                const std::vector<std::string>& argv,
                                                                std::string message,
                                                                std::function<void()> started) {
  std::unique_ptr<HostProcess> process(new HostProcess(io, console, std::move(message), std::move(started)));
  RETURN_IF_ERROR(process->Spawn(argv));
  process->WriteLine();
  process->AwaitStarted();
  return process;
}

absl::Status HostProcess::Spawn(const std::vector<std::string>& argv) {
  ASSIGN_OR_RETURN(Pipe in, MakePipe());
  ASSIGN_OR_RETURN(Pipe out, MakePipe());
  ASSIGN_OR_RETURN(Pipe err, MakePipe());
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&files) != 0 || posix_spawnattr_init(&attributes) != 0) {
    return absl::ResourceExhaustedError("out of memory");
  }
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_adddup2(&files, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err.write.get(), STDERR_FILENO);
  sigset_t none, reset;
  sigemptyset(&none);
  sigemptyset(&reset);
  for (const int signo : {SIGPIPE, SIGXFSZ}) sigaddset(&reset, signo);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &reset);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int error = posix_spawnp(&pid_, words[0], &files, &attributes, words.data(), environ);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", argv[0]));
  for (const int fd : {in.write.get(), out.read.get(), err.read.get()}) SetNonBlocking(fd);
  line_.assign(in.write.Release());
  early_.assign(out.read.Release());
  WorkerStream::Sinks sinks;
  sinks.console = &console_.err();
  sinks.tail = &tail_;
  err_ = std::make_unique<WorkerStream>(io_, std::move(err.read), std::move(sinks), [] {});
  return absl::OkStatus();
}

void HostProcess::Send(char frame) {
  if (closing_) return;
  unsent_ += frame;
  WriteLine();
}

void HostProcess::CloseLine() {
  closing_ = true;
  WriteLine();
}

void HostProcess::WriteLine() {
  if (writing_ || !line_.is_open()) return;
  boost::system::error_code ignored;
  if (sending_.empty()) sending_ = std::exchange(unsent_, {});
  if (sending_.empty()) {
    if (closing_) line_.close(ignored);
    return;
  }
  writing_ = true;
  line_.async_write_some(asio::buffer(sending_),
                         alive_.Guard([this](const boost::system::error_code& error, size_t n) {
                           writing_ = false;
                           boost::system::error_code ignored;
                           if (error)
                             return void(line_.close(ignored));  // ssh has closed its stdin, or has exited
                           sending_.erase(0, n);
                           WriteLine();
                         }));
}

void HostProcess::AwaitStarted() {
  early_.async_wait(asio::posix::stream_descriptor::wait_read,
                    alive_.Guard([this](const boost::system::error_code& error) {
                      if (error || !early_.is_open()) return;
                      ReadStarted();
                      if (early_.is_open()) AwaitStarted();
                    }));
}

void HostProcess::ReadStarted() {
  char c;
  while (early_.is_open()) {
    // One byte at a time: what follows the line belongs to the WorkerStream.
    const ssize_t n = read(early_.native_handle(), &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      console_.out().Write(early_text_);
      early_text_.clear();
      boost::system::error_code ignored;
      early_.close(ignored);
      return;
    }
    early_text_ += c;
    if (c == '\n') OnLine();
    if (early_text_.size() < kMaxEarlyLine) continue;
    console_.out().Write(early_text_);
    early_text_.clear();
  }
}

void HostProcess::OnLine() {
  absl::string_view line = early_text_;
  // A start file of the remote shell may have printed text before the line.
  if (!absl::ConsumeSuffix(&line, absl::StrCat(kStartedLine, "\n"))) {
    console_.out().Write(std::exchange(early_text_, {}));
    return;
  }
  if (!line.empty()) console_.out().Write(absl::StrCat(line, "\n"));
  early_text_.clear();
  WorkerStream::Sinks sinks;
  sinks.console = &console_.out();
  out_ = std::make_unique<WorkerStream>(io_, UniqueFd(early_.release()), std::move(sinks), [] {});
  started_ = true;
  on_started_();
}

void HostProcess::Kill(int signo) { kill(-pid_, signo); }

SshEnd HostProcess::Finish(int wait_status) {
  ReadStarted();  // the line may be in the pipe
  for (std::unique_ptr<WorkerStream>* stream : {&out_, &err_}) {
    if (*stream == nullptr) continue;
    (*stream)->Close();
    if ((*stream)->behind()) console_.FinishShowing(std::move(*stream));
    stream->reset();
  }
  boost::system::error_code ignored;
  line_.close(ignored);
  early_.close(ignored);
  closing_ = true;
  SshEnd end = {.started = started_, .last_line = LastLine(tail_.Get())};
  if (WIFSIGNALED(wait_status)) {
    end.signal = WTERMSIG(wait_status);
  } else {
    end.exit_code = WEXITSTATUS(wait_status);
  }
  return end;
}

}  // namespace ddprun
