#include "launcher/observers/observers.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/observers/event_log.h"
#include "launcher/observers/health_check.h"
#include "launcher/observers/job_metrics.h"

namespace ddprun {
namespace {

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Observers::Observers(boost::asio::io_context& io, const LaunchConfig& config, const AgentLog& log) {
  const auto write = [&log](const std::string& text) { log.Write(text); };
  const TimePoint now = std::chrono::steady_clock::now();
  if (config.event_handler == EventHandler::kConsole) {
    observers_.push_back(std::make_unique<JobEvents>(config, now, write));
  }
  if (config.metrics_handler == MetricsHandler::kConsole) {
    observers_.push_back(std::make_unique<JobMetrics>(config, now, UnixSeconds, write));
  }
  if (!config.health_check_port) return;
  absl::StatusOr<std::unique_ptr<HealthCheck>> check = HealthCheck::Open(io, *config.health_check_port);
  if (!check.ok()) {
    log.Say(
        absl::StrCat("running without a health check (set TORCHELASTIC_HEALTH_CHECK_PORT to another port): ",
                     std::string(check.status().message())));
    return;
  }
  if (*config.health_check_port == 0) {
    log.Say(absl::StrCat("the health check listens on port ", (*check)->port()));
  }
  observers_.push_back(*std::move(check));
}

std::vector<AgentObserver*> Observers::All() const {
  std::vector<AgentObserver*> all;
  for (const auto& observer : observers_) all.push_back(observer.get());
  return all;
}

}  // namespace ddprun
