#include "launcher/store_only.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/exit_info.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/signal_set.hpp"
#include "launcher/coordinator_log.h"
#include "launcher/held_signals.h"
#include "launcher/logs/output_sink.h"
#include "launcher/recording_file.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

}  // namespace

int RunStoreOnly(const StoreConfig& config, AgentLog& log) {
  asio::io_context io(1);
  // Log through a sink, so that a slow reader of stderr does not block the store's clients.
  OutputSink err(io, STDERR_FILENO, "stderr", [](const absl::Status&) {});
  log.SendTo([&err](absl::string_view text) { err.Write(text); });
  const absl::Cleanup restore_log = [&log] { log.SendTo({}); };
  // Watch the parent before printing the port: the parent may exit as soon as it has read the port.
  const pid_t parent = getppid();
  asio::posix::stream_descriptor parent_end(io);
  if (parent != 0) {  // 0: the parent is in another pid namespace, for example outside the container
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, parent, 0));
    if (fd < 0 && errno != ESRCH) {
      log.Say(absl::StrCat("cannot watch the parent process (pidfd_open: ", std::strerror(errno),
                           "): Linux 5.3 or later is needed"));
      return 1;
    }
    if (fd >= 0) parent_end.assign(fd);
    if (fd < 0 || getppid() != parent) return 0;  // The parent has already exited.
  }

  asio::signal_set signals(io);
  TakeSignals(signals, {SIGTERM, SIGINT, SIGQUIT, SIGHUP});
  std::unique_ptr<RecordingFile> recording;  // outlives the coordinator
  absl::StatusOr<std::unique_ptr<CoordinatorHost>> coordinator = CoordinatorHost::Open(
      io, config.host == "0.0.0.0" ? "" : config.host, config.port, CoordinatorLog(log));
  if (!coordinator.ok()) {
    log.Say(coordinator.status().message());
    return 1;
  }
  (*coordinator)->BecomeWitness();
  if (!config.record.empty()) {
    absl::StatusOr<std::unique_ptr<RecordingFile>> opened = RecordingFile::Open(io, config.record, &log);
    if (!opened.ok()) {
      log.Say(opened.status().message());
      return 1;
    }
    recording = *std::move(opened);
    (*coordinator)->RecordTo(recording->Sink());
  }
  int exit_code = 1;
  const auto end = [&](const std::string& reason, int code) {
    exit_code = code;
    log.Say(absl::StrCat("the store is shutting down: ", reason));
    (*coordinator)->Close(reason, kFarewell, [&] {
      if (recording == nullptr) return io.stop();
      recording->Flush([&io] { io.stop(); });
    });
  };
  if (parent_end.is_open()) {
    parent_end.async_wait(asio::posix::stream_descriptor::wait_read,
                          [&](const boost::system::error_code& error) {
                            if (!error) end("its parent exited", 0);
                          });
  }
  signals.async_wait([&](const boost::system::error_code& error, int signo) {
    if (error) return;
    signals.async_wait([&](const boost::system::error_code& error, int signo) {
      if (error) return;
      log.Say(absl::StrCat("received ", SignalName(signo), " again: not waiting for workers to stop"));
      (*coordinator)->CloseNow();
    });
    end(absl::StrCat("received ", SignalName(signo)), 0);
  });
  std::printf("%d\n", (*coordinator)->port());
  if (std::fflush(stdout) != 0) {
    log.Say("cannot write the port to stdout");
    return 1;
  }
  io.run();
  return exit_code;
}

}  // namespace ddprun
