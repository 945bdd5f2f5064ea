#include "launcher/ctl/ctl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/time.h"
#include "boost/program_options.hpp"
#include "launcher/ctl/coordinator_page.h"
#include "launcher/ctl/locate_coordinator.h"
#include "launcher/ctl/page_text.h"
#include "launcher/ctl/read_time.h"
#include "launcher/ctl/slurm_script.h"
#include "launcher/report/terminal_text.h"
#include "net/endpoint.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {
namespace {

namespace po = boost::program_options;

constexpr Duration kTimeout = seconds(10);
constexpr Duration kStacksTimeout = seconds(20);  // longer than nodes may take for native stacks
// Poll interval for --watch and --follow.
constexpr Duration kPollInterval = milliseconds(250);
constexpr int kDefaultPort = 29400;

constexpr char kUsage[] =
    R"(Usage: ddpctl COMMAND [options]

  status      show the jobs of a coordinator: nodes, ranks, steps, restarts, the last failure, and what each
              job waits for
  events      show the last 1000 events of a job, oldest first, with the reason for each event
  drain NODE  remove a node, given by its host name or node id, from its job. If the workers report steps,
              they take a snapshot first. The job continues without the node; no restart is spent.
  preempt NODE --deadline=TIME
              announce that a node goes away after TIME: the workers of the job stop after a snapshot, and the
              job continues without the node; no restart is spent
  stop        end a job on all its nodes
  stacks [RANK]
              show where the workers are, or one of them: the stacks of their threads, equal ones once. Python
              stacks by py-spy, without a pause; with --native also those of native code by gdb, which pauses
              each process for at most half a second
  slurm-script
              print a batch script for Slurm; it needs no coordinator and has options of its own: ddpctl
              slurm-script --help

TIME is a number with a unit, such as 90s or 2m; without a unit, seconds.

)";
constexpr char kExitCodes[] = R"(
Exit codes:
  0  success; with --watch or --follow, the job is over
  1  no valid answer from the coordinator
  2  usage error
  3  the coordinator refused the request: unknown job or node, ambiguous name, or the job is over
)";

struct Request {
  std::string command;
  std::string node;         // drain, preempt
  std::optional<int> rank;  // stacks
  bool native = false;
  std::string backend;
  std::string endpoint_text;
  std::string conf;
  std::vector<Endpoint> endpoints;  // without etcd: where the coordinator may be
  Endpoint endpoint;                // of the coordinator, as it was found last
  FindLeader find_leader;           // empty: the register is not on etcd
  std::string job;
  std::string reason;
  Duration deadline{};
  std::optional<Duration> back_in;
  bool json = false;
  bool repeat = false;  // --watch, --follow
};

po::options_description VisibleOptions(Request& request) {
  po::options_description options("Options");
  options.add_options()("help,h", "print this text")(
      "rdzv-endpoint", po::value(&request.endpoint_text)->default_value("localhost:29400"),
      "HOST[:PORT] of the coordinator; with several endpoints, HOST[:PORT],...; with etcd, HOST[:PORT],... "
      "of etcd")("rdzv-backend", po::value(&request.backend)->value_name("etcd"),
                 "the job has a register on etcd, which knows its coordinator; needs --job")(
      "rdzv-conf", po::value(&request.conf)->value_name("KEY=VALUE,..."), "how to use etcd, as for ddprun")(
      "job", po::value(&request.job),
      "the --rdzv-id of the job; optional if the coordinator has only one job")(
      "json", po::bool_switch(&request.json),
      "status, events: print the coordinator's page unchanged, as JSON")(
      "watch", "status: show the status again after each change, until the job is over or Ctrl-C is pressed")(
      "follow", "events: print new events as they occur, until the job is over or Ctrl-C is pressed")(
      "native", po::bool_switch(&request.native), "stacks: also native code, with a pause")(
      "reason", po::value(&request.reason),
      "drain, preempt, stop: the reason to show on the nodes and in the events")(
      "deadline", po::value<std::string>()->value_name("TIME"), "preempt: when the node goes away")(
      "back-in", po::value<std::string>()->value_name("TIME"),
      "preempt: when it is available again; the job waits for it if too few nodes are left");
  return options;
}

// Returns nullopt after printing --help. Throws po::error for a usage error.
std::optional<Request> ParseRequest(const std::vector<std::string>& args, const FindLeader& find_leader,
                                    std::ostream& out) {
  Request request;
  const po::options_description visible = VisibleOptions(request);
  po::options_description all;
  all.add(visible).add_options()("command", po::value(&request.command))("node", po::value(&request.node));
  po::positional_options_description positional;
  positional.add("command", 1).add("node", 1);
  po::variables_map given;
  po::store(po::command_line_parser(args).options(all).positional(positional).run(), given);
  po::notify(given);
  if (given.contains("help")) {
    out << kUsage << visible << kExitCodes;
    return std::nullopt;
  }
  const auto only_for = [&](const char* option, std::initializer_list<const char*> commands) {
    const bool fits = std::find(commands.begin(), commands.end(), request.command) != commands.end();
    if (given.contains(option) && !given[option].defaulted() && !fits)
      throw po::error(absl::StrCat("--", option, " cannot be used with ", request.command));
  };
  if (request.command == "slurm-script")
    throw po::error("slurm-script: expected it as the first argument, before its options");
  constexpr std::string_view kCommands[] = {"status", "events", "drain", "preempt", "stop", "stacks"};
  if (std::find(std::begin(kCommands), std::end(kCommands), request.command) == std::end(kCommands)) {
    throw po::error(absl::StrCat(
        "expected a command (status, events, drain, preempt, stop, stacks or slurm-script), not \"",
        request.command, "\""));
  }
  only_for("watch", {"status"});
  only_for("follow", {"events"});
  only_for("reason", {"drain", "preempt", "stop"});
  only_for("deadline", {"preempt"});
  only_for("back-in", {"preempt"});
  if (request.json) only_for("json", {"status", "events"});
  if (request.native) only_for("native", {"stacks"});
  const bool names_node = request.command == "drain" || request.command == "preempt";
  if (names_node && request.node.empty())
    throw po::error(absl::StrCat(request.command, ": expected a node (host name or id)"));
  if (request.command == "stacks" && !request.node.empty()) {
    int rank = 0;
    if (!absl::SimpleAtoi(request.node, &rank) || rank < 0)
      throw po::error(absl::StrCat("stacks ", request.node, ": expected the rank of a worker, such as 0"));
    request.rank = rank;
    request.node.clear();
  }
  if (!names_node && !request.node.empty())
    throw po::error(absl::StrCat("unexpected \"", request.node, "\" after ", request.command));
  if (request.command == "preempt") {
    if (!given.contains("deadline"))
      throw po::error("preempt: expected --deadline=TIME, when the node goes away");
    request.deadline = ReadTime("deadline", given["deadline"].as<std::string>());
    if (given.contains("back-in")) request.back_in = ReadTime("back-in", given["back-in"].as<std::string>());
  }
  request.repeat = given.contains("watch") || given.contains("follow");
  if (request.backend == "etcd" || request.backend == "etcd-v2") {
    if (request.job.empty())
      throw po::error("--rdzv-backend=etcd: expected --job=ID, the --rdzv-id of the job");
    if (given["rdzv-endpoint"].defaulted()) request.endpoint_text = "";
    request.find_leader = find_leader;
    return request;
  }
  if (!request.backend.empty() && request.backend != "c10d" && request.backend != "static")
    throw po::error(absl::StrCat("--rdzv-backend=", request.backend, ": expected etcd, c10d or static"));
  if (!request.conf.empty()) throw po::error("--rdzv-conf has an effect only with --rdzv-backend=etcd");
  for (const absl::string_view part : absl::StrSplit(request.endpoint_text, ',')) {
    absl::StatusOr<Endpoint> parsed = ParseEndpoint(part, kDefaultPort);
    if (!parsed.ok())
      throw po::error(absl::StrCat("--rdzv-endpoint: ", std::string(parsed.status().message())));
    request.endpoints.push_back(*std::move(parsed));
  }
  return request;
}

// Finds the coordinator, which may have moved.
absl::Status Locate(Request& request) {
  if (!request.find_leader) {
    ASSIGN_OR_RETURN(request.endpoint, LocateCoordinator(request.endpoints, request.job, kTimeout));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(request.endpoint, request.find_leader({request.job, request.endpoint_text, request.conf}));
  return absl::OkStatus();
}

// Returns the page at `path`.
//   Errors: those of GetCoordinatorPage. kNotFound, kInvalidArgument: the coordinator refused the request;
//           the message is the coordinator's.
absl::StatusOr<CoordinatorPage> GetPage(Request& request, const std::string& path) {
  RETURN_IF_ERROR(Locate(request));
  ASSIGN_OR_RETURN(CoordinatorPage answer, GetCoordinatorPage(request.endpoint, path, kTimeout));
  if (answer.status == 200) return answer;
  const std::string why = answer.body.substr(0, answer.body.find('\n'));
  return answer.status == 404 ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
}

// The result of one poll.
struct View {
  std::string text;
  bool job_is_over = false;
};

// Polls once and passes the text to `show`. With --watch or --follow, polls until the job is over. After the
// first successful poll, a refused connection or kNotFound means that the job is over, because the
// coordinator exits after its jobs have ended. After any other kUnavailable, retries for 2 * kTimeout.
absl::Status Poll(const Request& request, const std::function<absl::StatusOr<View>()>& read,
                  const std::function<void(const std::string&)>& show) {
  std::optional<TimePoint> answered;
  for (;; std::this_thread::sleep_for(kPollInterval)) {
    const absl::StatusOr<View> view = read();
    const TimePoint now = std::chrono::steady_clock::now();
    if (view.ok()) {
      show(view->text);
      if (!request.repeat || view->job_is_over) return absl::OkStatus();
      answered = now;
      continue;
    }
    if (!answered) return view.status();
    // The coordinator of a job with a register may have moved.
    const bool refused = IsRefused(view.status()) && !request.find_leader && request.endpoints.size() == 1;
    if (refused || absl::IsNotFound(view.status()) || absl::IsFailedPrecondition(view.status())) {
      show("the coordinator has exited or no longer has the job\n");
      return absl::OkStatus();
    }
    if (!absl::IsUnavailable(view.status()) || now - *answered > 2 * kTimeout) return view.status();
  }
}

absl::Status Status(Request& request, CtlStreams streams) {
  std::string shown;
  return Poll(
      request,
      [&]() -> absl::StatusOr<View> {
        ASSIGN_OR_RETURN(const CoordinatorPage page, GetPage(request, "/status"));
        ASSIGN_OR_RETURN(const StatusView view, StatusTable(page.body, request.job));
        return View{request.json ? page.body : view.text, view.all_over};
      },
      [&](const std::string& text) {
        if (text == shown) return;
        if (request.repeat && streams.redraw) streams.out << "\x1b[H\x1b[2J";
        if (request.repeat && !streams.redraw && !shown.empty() && !request.json) streams.out << "\n";
        streams.out << text << std::flush;
        shown = text;
      });
}

absl::Status Events(Request& request, CtlStreams streams) {
  uint64_t after = 0;
  return Poll(
      request,
      [&]() -> absl::StatusOr<View> {
        ASSIGN_OR_RETURN(
            const CoordinatorPage page,
            GetPage(request, absl::StrCat("/events?job=", QueryEncoded(request.job), "&after=", after)));
        ASSIGN_OR_RETURN(const EventLines lines, ParseEvents(page.body));
        if (lines.last_seq > 0) after = lines.last_seq;
        return View{request.json ? page.body : lines.text, lines.over};
      },
      [&](const std::string& text) { streams.out << text << std::flush; });
}

absl::Status Change(Request& request, CtlStreams streams) {
  // Probe over HTTP first: if no coordinator listens on the port, gRPC's error message would be hard to read.
  ASSIGN_OR_RETURN(const CoordinatorPage found, GetPage(request, "/healthz"));
  const ControlTarget target{found.address, request.endpoint.port, kTimeout};
  const std::string reason = request.reason.empty() ? "requested by ddpctl" : request.reason;
  const absl::StatusOr<std::string> text =
      request.command == "drain" ? DrainNode(target, request.job, request.node, reason)
      : request.command == "preempt"
          ? PreemptNode(target, request.job, request.node, reason, request.deadline, request.back_in)
          : StopJob(target, request.job, reason);
  if (text.ok()) streams.out << CleanLine(*text) << "\n";
  return text.status();
}

absl::Status Stacks(Request& request, CtlStreams streams) {
  ASSIGN_OR_RETURN(const CoordinatorPage found, GetPage(request, "/healthz"));
  ASSIGN_OR_RETURN(const std::string text, StacksOfJob({found.address, request.endpoint.port, kStacksTimeout},
                                                       request.job, request.rank, request.native));
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    streams.out << line.substr(0, indent) << CleanLine(line.substr(indent)) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

int RunCtl(const std::vector<std::string>& args, const FindLeader& find_leader, CtlStreams streams) {
  std::optional<Request> request;
  try {
    if (!args.empty() && args[0] == "slurm-script") {
      streams.out << SlurmScript({args.begin() + 1, args.end()}) << std::flush;
      if (streams.out) return 0;
      streams.err << "ddpctl: error: cannot write the script to stdout\n";
      return 1;
    }
    request = ParseRequest(args, find_leader, streams.out);
  } catch (const po::error& e) {
    streams.err << "ddpctl: error: " << e.what() << "\nddpctl: see ddpctl --help\n";
    return 2;
  }
  if (!request) return 0;
  const absl::Status done = request->command == "status"   ? Status(*request, streams)
                            : request->command == "events" ? Events(*request, streams)
                            : request->command == "stacks" ? Stacks(*request, streams)
                                                           : Change(*request, streams);
  if (done.ok()) return 0;
  streams.err << "ddpctl: error: " << CleanLine(done.message()) << "\n";
  const bool refused =
      absl::IsNotFound(done) || absl::IsInvalidArgument(done) || absl::IsFailedPrecondition(done);
  return refused ? 3 : 1;
}

int RunCtl(const std::vector<std::string>& args, const FindLeader& find_leader) {
  return RunCtl(args, find_leader, {std::cout, std::cerr, isatty(STDOUT_FILENO) == 1});
}

}  // namespace ddprun
