#include "launcher/config/options.h"

#include <algorithm>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <boost/program_options/variables_map.hpp>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "launcher/config/exit_code.h"

namespace ddprun {
namespace {

namespace po = boost::program_options;

enum class Kind { kValue, kFlag };
enum class Env { kPet, kNone };
enum class Origin { kTorchrun, kOurs };

struct OptionSpec {
  const char* section;
  const char* name;
  char letter;  // 0: none
  Kind kind;
  const char* value_name;
  const char* fallback;
  Env env;  // kPet: its default can be set by PET_<NAME>
  const char* help;
  Origin origin = Origin::kTorchrun;
};

// One section after the other, as --help shows them.
constexpr OptionSpec kOptions[] = {
    {"Size of the job", "nnodes", 0, Kind::kValue, "N|MIN:MAX", "1:1", Env::kPet,
     "Number of nodes, or the range in which the job runs. 1:4 starts with this node alone and grows as "
     "others "
     "join."},
    {"Size of the job", "nproc-per-node", 0, Kind::kValue, "N|auto|gpu|cpu", "1", Env::kPet,
     "Workers on this node. gpu: one for each GPU; cpu: one for each processor; auto: gpu where there are "
     "any, "
     "else cpu."},
    {"Size of the job", "scale-up", 0, Kind::kValue, "immediate|at-snapshot|never", "immediate", Env::kPet,
     "When nodes that come to a running job are taken in: after the last call; then, at a snapshot that the "
     "workers are asked for; or only when a round ends anyhow.",
     Origin::kOurs},
    {"Size of the job", "snapshot-timeout", 0, Kind::kValue, "SECONDS", "60", Env::kPet,
     "How long to wait for a snapshot that was asked for.", Origin::kOurs},
    {"Size of the job", "node-unit", 0, Kind::kValue, "K", "1", Env::kPet,
     "The job runs on multiples of K nodes.", Origin::kOurs},
    {"How nodes meet", "rdzv-backend", 0, Kind::kValue, "static|c10d", "static", Env::kPet,
     "static: fixed nodes with --node-rank; c10d: nodes come and go within --nnodes, the default where "
     "several "
     "nodes have an endpoint and no ranks."},
    {"How nodes meet", "rdzv-endpoint", 0, Kind::kValue, "HOST[:PORT]", "", Env::kPet,
     "Where the nodes meet (default port 29400). The node that HOST names hosts the coordinator."},
    {"How nodes meet", "rdzv-id", 0, Kind::kValue, "ID", "none", Env::kPet,
     "Name of the job; the same on all its nodes."},
    {"How nodes meet", "rdzv-conf", 0, Kind::kValue, "KEY=VALUE,...", "", Env::kPet,
     "In whole seconds: join_timeout=600 (static: timeout), last_call_timeout=30, read_timeout=60. Also "
     "is_host=true|false, and lease_ms=5000, after which a silent node counts as lost. close_timeout, "
     "heartbeat_timeout, keep_alive_interval and keep_alive_max_attempt are accepted for compatibility."},
    {"How nodes meet", "standalone", 0, Kind::kFlag, "", "", Env::kPet,
     "One node, no other settings: an own coordinator on a free port."},
    {"How nodes meet", "node-rank", 0, Kind::kValue, "RANK", "0", Env::kPet,
     "Rank of this node, 0..N-1. With c10d honoured among the nodes that give one."},
    {"How nodes meet", "master-addr", 0, Kind::kValue, "HOST", "127.0.0.1", Env::kPet,
     "Host of node rank 0 (static only)."},
    {"How nodes meet", "master-port", 0, Kind::kValue, "PORT", "", Env::kPet,
     "Port on that host (static only; 29500 where one is needed)."},
    {"How nodes meet", "local-addr", 0, Kind::kValue, "HOST", "", Env::kPet,
     "Address under which this node is known to the others; when not given, the one by which it reaches the "
     "coordinator."},
    {"Workers", "module", 'm', Kind::kFlag, "", "", Env::kPet, "The program is a Python module: python -m."},
    {"Workers", "no-python", 0, Kind::kFlag, "", "", Env::kPet,
     "The program is run as it is, found through PATH; never with Python."},
    {"Workers", "role", 0, Kind::kValue, "NAME", "default", Env::kPet, "Role of this node's workers."},
    {"When workers fail or end", "max-restarts", 0, Kind::kValue, "N", "0", Env::kPet,
     "Failures after which the job's workers are started again."},
    {"When workers fail or end", "max-restarts-without-progress", 0, Kind::kValue, "N", "3", Env::kPet,
     "Restarts in a row that bring the job no step forward, after which it ends; counts workers that report "
     "their steps. 0: any number.",
     Origin::kOurs},
    {"When workers fail or end", "min-uptime", 0, Kind::kValue, "SECONDS", "0", Env::kPet,
     "A worker that fails earlier, and before its first step, ends the job. 0: none does.", Origin::kOurs},
    {"When workers fail or end", "monitor-interval", 0, Kind::kValue, "SECONDS", "0.1", Env::kPet,
     "Accepted for compatibility: workers are watched without polling."},
    {"When workers fail or end", "shutdown-timeout", 0, Kind::kValue, "SECONDS", "", Env::kPet,
     "Between the signal and SIGKILL when the launcher is ended (TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)."},
    {"When workers fail or end", "exit-codes", 0, Kind::kValue, "torchrun|scheduler", "torchrun", Env::kPet,
     "torchrun: 0, or 1 for every failure. scheduler: also 75, where another start may do better; see below.",
     Origin::kOurs},
    {"Output of the workers", "log-dir", 0, Kind::kValue, "DIR", "", Env::kPet,
     "Base directory of logs and error files; a new one below the temporary directory when not given. "
     "/dev/null: "
     "no files."},
    {"Output of the workers", "redirects", 'r', Kind::kValue, "D|RANK:D,...", "0", Env::kPet,
     "Streams that go to files: 0 none, 1 stdout, 2 stderr, 3 both; for all local ranks, or for some."},
    {"Output of the workers", "tee", 't', Kind::kValue, "D|RANK:D,...", "0", Env::kPet,
     "Streams that go to files and, with a prefix, to the console."},
    {"Only a store", "store-only", 0, Kind::kFlag, "", "", Env::kNone,
     "Serve a coordinator and store alone; prints its port on the first line and ends with its parent.",
     Origin::kOurs},
    {"Only a store", "host", 0, Kind::kValue, "ADDR", "127.0.0.1", Env::kNone,
     "Address to listen on; 0.0.0.0 for all.", Origin::kOurs},
    {"Only a store", "port", 0, Kind::kValue, "PORT", "0", Env::kNone, "Port to listen on; 0: a free one.",
     Origin::kOurs},
    {"About", "version", 0, Kind::kFlag, "", "", Env::kNone, "Print the version.", Origin::kOurs},
    {"About", "help", 'h', Kind::kFlag, "", "", Env::kNone, "Print this text."},
};

template <typename... Text>
absl::Status Usage(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

std::string WithDashes(absl::string_view name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

std::string PetName(const OptionSpec& spec) {
  return absl::StrCat("PET_", absl::AsciiStrToUpper(absl::StrReplaceAll(spec.name, {{"-", "_"}})));
}

// Levenshtein's: letters to put in, take out or change.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, change});
    }
  }
  return row.back();
}

// " Did you mean --nnodes?", or nothing when none is near.
std::string Nearest(absl::string_view name) {
  const auto* best = std::min_element(
      std::begin(kOptions), std::end(kOptions),
      [&](const auto& a, const auto& b) { return Distance(name, a.name) < Distance(name, b.name); });
  if (Distance(name, best->name) > std::max<size_t>(2, name.size() / 3)) return "";
  return absl::StrCat(" Did you mean --", best->name, "?");
}

absl::StatusOr<const OptionSpec*> FindLong(absl::string_view typed) {
  const std::string name = absl::StrReplaceAll(typed, {{"_", "-"}});
  std::vector<const OptionSpec*> found;
  for (const OptionSpec& spec : kOptions) {
    if (name == spec.name) return &spec;
    if (absl::StartsWith(spec.name, name)) found.push_back(&spec);
  }
  // A beginning that torchrun understands means the same here.
  if (found.size() > 1) {
    std::vector<const OptionSpec*> torchruns;
    std::copy_if(found.begin(), found.end(), std::back_inserter(torchruns),
                 [](const OptionSpec* spec) { return spec->origin == Origin::kTorchrun; });
    if (torchruns.size() == 1) found = std::move(torchruns);
  }
  if (found.empty()) return Usage("unknown option --", typed, ".", Nearest(name));
  if (found.size() > 1) {
    return Usage("--", typed, " can mean ",
                 absl::StrJoin(found, " or ", [](std::string* out, const auto* spec) {
                   absl::StrAppend(out, "--", spec->name);
                 }));
  }
  return found[0];
}

absl::StatusOr<const OptionSpec*> FindShort(char letter) {
  for (const OptionSpec& spec : kOptions) {
    if (spec.letter == letter) return &spec;
  }
  return Usage("unknown option -", std::string(1, letter), ": see --help");
}

bool LooksLikeAnOption(absl::string_view arg) {
  double number;
  return arg.size() > 1 && arg[0] == '-' && !absl::SimpleAtod(arg, &number);
}

struct Given {
  const OptionSpec* spec;
  std::string value;  // "1" for a flag
};

// One option, and how it was written: the name with its dashes, and a value joined to it.
struct Token {
  const OptionSpec* spec;
  std::string typed;
  std::optional<std::string> joined;
};

absl::StatusOr<Token> ReadToken(absl::string_view arg) {
  const bool is_long = absl::StartsWith(arg, "--");
  const size_t equals = arg.find('=');
  if (is_long) {
    Token token = {.spec = nullptr, .typed = std::string(arg.substr(0, equals)), .joined = {}};
    ASSIGN_OR_RETURN(token.spec, FindLong(absl::string_view(token.typed).substr(2)));
    if (equals != absl::string_view::npos) token.joined = std::string(arg.substr(equals + 1));
    return token;
  }
  Token token = {.spec = nullptr, .typed = std::string(arg.substr(0, 2)), .joined = {}};
  ASSIGN_OR_RETURN(token.spec, FindShort(arg[1]));
  // -r3, -r=3
  if (arg.size() > 2) token.joined = std::string(arg.substr(equals == 2 ? 3 : 2));
  return token;
}

// Splits `args` into the options before the program, and the program.
absl::StatusOr<std::vector<Given>> Split(const std::vector<std::string>& args,
                                         std::vector<std::string>& program) {
  std::vector<Given> given;
  size_t i = 0;
  for (; i < args.size() && LooksLikeAnOption(args[i]); ++i) {
    if (args[i] == "--") {
      ++i;
      break;
    }
    ASSIGN_OR_RETURN(Token token, ReadToken(args[i]));
    if (token.spec->kind == Kind::kFlag) {
      if (token.joined) return Usage(args[i], ": ", token.typed, " takes no value");
      given.push_back({token.spec, "1"});
      continue;
    }
    if (!token.joined) {
      if (i + 1 == args.size() || LooksLikeAnOption(args[i + 1])) {
        return Usage(token.typed, " needs a value: ", token.typed, "=", token.spec->value_name);
      }
      token.joined = args[++i];
    }
    given.push_back({token.spec, *std::move(token.joined)});
  }
  program.assign(args.begin() + static_cast<ptrdiff_t>(i), args.end());
  return given;
}

absl::StatusOr<std::vector<Given>> FromEnvironment(const GetEnv& get_env) {
  std::vector<Given> given;
  for (const OptionSpec& spec : kOptions) {
    if (spec.env != Env::kPet) continue;
    const std::optional<std::string> value = get_env(PetName(spec));
    if (!value) continue;
    if (spec.kind == Kind::kValue) {
      given.push_back({&spec, *value});
      continue;
    }
    int64_t number;
    if (!absl::SimpleAtoi(*value, &number)) {
      return Usage(PetName(spec), "=", *value, ": expected a whole number (0: off, anything else: on)");
    }
    if (number != 0) given.push_back({&spec, "1"});
  }
  return given;
}

// What Program_options knows of the table: all of it, one description for each section.
po::options_description Describe() {
  po::options_description all(100, 45);
  for (size_t i = 0; i < std::size(kOptions);) {
    po::options_description section(kOptions[i].section, 100, 45);
    const char* const title = kOptions[i].section;
    for (; i < std::size(kOptions) && absl::string_view(kOptions[i].section) == title; ++i) {
      const OptionSpec& spec = kOptions[i];
      std::string name = spec.name;
      if (spec.letter != 0) absl::StrAppend(&name, ",", std::string(1, spec.letter));
      auto* value = po::value<std::string>()->value_name(spec.value_name);
      if (spec.kind == Kind::kFlag) value->zero_tokens();
      value->default_value(spec.fallback);
      if (*spec.fallback == '\0') value->default_value("", "");
      section.add_options()(name.c_str(), value, spec.help);
    }
    all.add(section);
  }
  return all;
}

po::parsed_options ForStore(const po::options_description& description, const std::vector<Given>& given) {
  po::parsed_options parsed(&description);
  // Of an option given twice the last one counts.
  std::map<std::string, std::string> last;
  for (const Given& g : given) last[g.spec->name] = g.value;
  for (const auto& [name, value] : last) parsed.options.emplace_back(name, std::vector<std::string>{value});
  return parsed;
}

}  // namespace

std::string Options::Quote(absl::string_view name) const {
  const Entry& entry = At(name);
  return absl::StrCat(entry.source.empty() ? WithDashes(name) : entry.source, "=", entry.value);
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& args, const GetEnv& get_env) {
  Options options;
  ASSIGN_OR_RETURN(const std::vector<Given> typed, Split(args, options.program_));
  ASSIGN_OR_RETURN(const std::vector<Given> environment, FromEnvironment(get_env));
  const po::options_description description = Describe();
  po::variables_map values;
  // What is stored first stays.
  po::store(ForStore(description, typed), values);
  po::store(ForStore(description, environment), values);
  for (const OptionSpec& spec : kOptions) {
    options.entries_[spec.name] = {.value = values[spec.name].as<std::string>(), .source = ""};
  }
  for (const Given& g : environment) options.entries_[g.spec->name].source = PetName(*g.spec);
  for (const Given& g : typed) options.entries_[g.spec->name].source = WithDashes(g.spec->name);
  return options;
}

std::string HelpText() {
  std::ostringstream text;
  text << "ddprun starts, watches and heals a data-parallel training job: run it once on every node.\n\n"
          "Usage: ddprun [options] PROGRAM [its arguments]\n\n"
          "PROGRAM is an executable, run as it is, or a .py file, run with $PYTHON_EXEC or python3. All "
          "behind it\n"
          "is its own; in it ${local_rank} stands for the worker's local rank.\n"
          "PET_<OPTION> in the environment, such as PET_NNODES, replaces an option's default.\n"
       << Describe() << "\n"
       << ExitCodeHelp();
  return text.str();
}

std::vector<std::string> OptionNames() {
  std::vector<std::string> names;
  for (const OptionSpec& spec : kOptions) names.emplace_back(spec.name);
  return names;
}

}  // namespace ddprun
