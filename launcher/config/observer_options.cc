#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

absl::Status ReadEventHandler(const Options& options, LaunchConfig& config) {
  const std::string& handler = options.Get("event-log-handler");
  if (handler == "console") {
    config.event_handler = EventHandler::kConsole;
  } else if (handler != "null" && handler != "dynamic_rendezvous") {  // an alias for null, as in torchrun
    return BadValue(options, "event-log-handler",
                    "null or console; other names are Python plug-ins, which cannot be loaded here");
  }
  return absl::OkStatus();
}

absl::Status ReadMetricsHandler(const Options& options, LaunchConfig& config) {
  const std::string& handler = options.Get("metrics-handler");
  if (handler == "console") {
    config.metrics_handler = MetricsHandler::kConsole;
  } else if (handler != "null") {
    return BadValue(options, "metrics-handler", "null or console");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadObservers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  RETURN_IF_ERROR(ReadEventHandler(options, config));
  RETURN_IF_ERROR(ReadMetricsHandler(options, config));
  config.record = options.Get("record");
  const GetEnv& get_env = inputs.get_env;
  config.own_error_file = get_env("TORCHELASTIC_ERROR_FILE").value_or("");
  if (get_env("TORCHELASTIC_ENABLE_FILE_TIMER") == "1") {
    config.watchdog_fifo = get_env("TORCHELASTIC_TIMER_FILE").value_or("");
  }
  constexpr char kHealthPort[] = "TORCHELASTIC_HEALTH_CHECK_PORT";
  if (const auto port = get_env(kHealthPort); port && !port->empty()) {
    ASSIGN_OR_RETURN(config.health_check_port,
                     WholeNumber(kHealthPort, *port, 0, 65535, "a port from 0 to 65535"));
  }
  return absl::OkStatus();
}

}  // namespace ddprun
