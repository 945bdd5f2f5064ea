#include "launcher/observers/job_event.h"

#include "absl/strings/str_cat.h"
#include "launcher/report/python_json.h"

namespace ddprun {
namespace {

std::string IntOrNull(std::optional<int64_t> number) {
  return number ? absl::StrCat(*number) : std::string("null");
}

std::string StringOrNull(const std::optional<std::string>& text) {
  return text ? PythonString(*text) : std::string("null");
}

// torchrun writes these fields as one-element tuples, which are lists in JSON.
std::string ListOf(absl::string_view name, const std::string& value) {
  return absl::StrCat(", \"", name, "\": [", value, "]");
}

std::string MetadataOf(const EventContext& context, const std::optional<EventWorker>& worker) {
  std::string text = absl::StrCat("{\"group_world_size\": ", IntOrNull(context.group_world_size),
                                  ", \"entry_point\": ", PythonString(context.entry_point));
  if (worker) {
    absl::StrAppend(&text, ListOf("local_rank", absl::StrCat(worker->local_rank.value())),
                    ListOf("role_rank", absl::StrCat(worker->role_rank)),
                    ListOf("role_world_size", absl::StrCat(worker->role_world_size)),
                    ListOf("exit_code", IntOrNull(worker->exit_code)),
                    ListOf("worker_pid", IntOrNull(worker->failed_pid)));
  }
  return text + "}";
}

struct Fields {
  absl::string_view name;
  absl::string_view source;
  absl::string_view state;
  std::string global_rank = "null";
  std::string worker_id = "null";
  std::string raw_error = "null";
  std::string metadata;
};

// Returns the event's JSON without the closing braces of the inner and the outer object.
std::string Head(const EventContext& context, const Fields& f) {
  return absl::StrCat(
      "{\"name\": ", PythonString(f.name), ", \"source\": \"", f.source,
      "\", \"timestamp\": 0, \"metadata\": {\"run_id\": ", PythonString(context.run_id),
      ", \"global_rank\": ", f.global_rank, ", \"group_rank\": ", IntOrNull(context.group_rank),
      ", \"worker_id\": ", f.worker_id, ", \"role\": ", PythonString(context.role),
      ", \"hostname\": ", PythonString(context.hostname), ", \"state\": \"", f.state,
      "\", \"total_run_time\": ", context.total_run_time,
      ", \"rdzv_backend\": ", PythonString(context.rdzv_backend), ", \"raw_error\": ", f.raw_error,
      ", \"metadata\": ", PythonString(f.metadata), ", \"agent_restarts\": ", context.agent_restarts);
}

}  // namespace

std::string FormatEvent(const EventContext& context, const JobEvent& event) {
  const std::string name = absl::StrCat("torchelastic.worker.status.", event.state);
  Fields fields = {.name = name,
                   .source = event.worker ? "WORKER" : "AGENT",
                   .state = event.state,
                   .raw_error = StringOrNull(event.raw_error),
                   .metadata = MetadataOf(context, event.worker)};
  if (event.worker) {
    fields.global_rank = absl::StrCat(event.worker->rank.value());
    fields.worker_id = absl::StrCat("\"", event.worker->pid, "\"");
  }
  return absl::StrCat(Head(context, fields), ", \"duration_ms\": ",
                      event.duration_ms ? PythonFloat(*event.duration_ms) : std::string("null"), "}}");
}

std::string FormatWatchdogEvent(const EventContext& context, absl::string_view name,
                                const std::string& metadata) {
  return absl::StrCat(
      Head(context, {.name = name, .source = "AGENT", .state = "RUNNING", .metadata = metadata}), "}}");
}

}  // namespace ddprun
