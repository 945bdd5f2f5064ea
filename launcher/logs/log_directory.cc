#include "launcher/logs/log_directory.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

constexpr Duration kOpenPatience = seconds(5);

}  // namespace

LogDirectory::LogDirectory(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log)
    : io_(io), config_(*config), log_(*log), disk_(io), patience_(io) {
  const auto make = [made = made_, base = config_.log_dir, run_id = config_.run_id,
                     num_workers = config_.num_local_workers] {
    const auto create = [&](absl::string_view in) {
      absl::StatusOr<LogLayout> layout = LogLayout::Create(in, run_id);
      absl::Status status = layout.status();
      if (status.ok()) made->layout = std::make_shared<LogLayout>(*std::move(layout));
      return status;
    };
    made->status = create(base);
    if (!made->status.ok() && base.empty()) create(kLogsOff).IgnoreError();
    if (made->layout != nullptr) made->layout->PrepareAttempt(0, num_workers);
  };
  if (config_.log_dir == kLogsOff) {
    make();
    OnMade();
  } else {
    LogIfSlow("this node does not join the job until it answers");
    disk_.Do(make, [this] { OnMade(); });
  }
}

void LogDirectory::OnMade() {
  if (flushed_) return;
  patience_.cancel();
  is_made_ = true;
  layout_ = made_->layout;
  if (layout_ != nullptr && !made_->status.ok()) {
    log_.Say(absl::StrCat(
        "running without log files and error files of workers (set --log-dir to a writable directory): ",
        std::string(made_->status.message())));
    made_->status = absl::OkStatus();
  }
  if (when_open_) std::exchange(when_open_, nullptr)(WithContext(made_->status, "--log-dir"));
}

void LogDirectory::WhenOpen(std::function<void(const absl::Status&)> done) {
  when_open_ = std::move(done);
  if (!is_made_) return;
  boost::asio::post(io_, alive_.Guard([this] {
    std::exchange(when_open_, nullptr)(WithContext(made_->status, "--log-dir"));
  }));
}

void LogDirectory::OpenFiles(std::shared_ptr<StartFiles> files, std::function<void()> done) {
  const int opening = ++opening_;
  if (disk_.idle() && !files->NeedsDisk(*layout_)) {
    files->Open(*layout_);
    return done();
  }
  LogIfSlow("the workers do not start until it answers");
  disk_.Do([layout = layout_, files] { files->Open(*layout); },
           [this, opening, done = std::move(done)] {
             if (opening != opening_) return;
             patience_.cancel();
             done();
           });
}

void LogDirectory::CancelOpenFiles() {
  ++opening_;
  patience_.cancel();
}

void LogDirectory::LogIfSlow(const std::string& consequence) {
  patience_.expires_after(kOpenPatience);
  patience_.async_wait(alive_.Guard([this, consequence](const boost::system::error_code& error) {
    if (error) return;
    log_.Say(absl::StrCat("the file system of ", Name(), " does not answer; ", consequence));
  }));
}

std::string LogDirectory::Name() const {
  if (layout_ != nullptr && !layout_->off()) return absl::StrCat("the log directory ", layout_->run_dir());
  if (config_.log_dir.empty()) return "the temporary directory";
  return absl::StrCat("the log directory ", config_.log_dir);
}

void LogDirectory::Flush(Duration limit, std::function<void()> done) {
  flushed_ = true;
  patience_.cancel();
  const std::string name = Name();
  layout_ = nullptr;
  // This job runs after the job that creates the layout. It destroys the layout in the thread of disk_,
  // because the destructor may block on the file system.
  if (config_.log_dir != kLogsOff) disk_.Do([made = made_] { made->layout = nullptr; });
  disk_.Finish(limit, [this, limit, name, done = std::move(done)](bool finished) {
    if (!finished) {
      log_.Say(absl::StrCat("the file system of ", name, " has not answered for ",
                            absl::FormatDuration(absl::FromChrono(limit)), ": ",
                            disk_.bytes() == 0 ? "empty directories may be left there"
                                               : absl::StrCat("the last output, about ", disk_.bytes() >> 10,
                                                              " KiB, is not on disk")));
    }
    done();
  });
}

}  // namespace ddprun
