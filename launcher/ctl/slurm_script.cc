#include "launcher/ctl/slurm_script.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/program_options.hpp"
#include "launcher/config/program.h"
#include "launcher/ctl/read_time.h"

namespace ddprun {
namespace {

namespace po = boost::program_options;

constexpr char kUsage[] =
    R"(Usage: ddpctl slurm-script [options] -- [OPTION OF DDPRUN...] PROGRAM [ARGUMENT...]

Prints a batch script for sbatch. The job starts one agent on each node, gets a notice of pre-emption before its
time limit, and is queued again if ddprun exits with 75, that is, if another start may succeed.

  ddpctl slurm-script --nodes=2-4 --time=1-00:00:00 -- --max-restarts=3 train.py > job.sh
  sbatch job.sh

)";

// Slurm's limit for the time of --signal.
constexpr Duration kMaxNotice = seconds(65535);

// Options that reach the script as they are, in this order.
struct PlainOption {
  const char* name;
  const char* value_name;
  const char* help;
};
constexpr PlainOption kPlainOptions[] = {
    {"job-name", "NAME", "name of the job; the default is the name of the script"},
    {"account", "NAME", "account to charge"},
    {"partition", "NAME[,NAME...]", "partition to run in"},
    {"qos", "NAME", "quality of service"},
    {"gpus-per-node", "[TYPE:]N", "GPUs on each node; ddprun starts one worker for each"},
    {"mem", "SIZE", "memory on each node, such as 200G; 0 means all"},
    {"output", "FILE", "file for the output, such as logs/%x-%j.out; each start of the job appends to it"},
};

struct NodeRange {
  int min = 1;
  int max = 1;
};

po::error WrongValue(absl::string_view option, absl::string_view value, absl::string_view expected) {
  return po::error(absl::StrCat("slurm-script: --", option, "=", value, ": expected ", expected));
}

int ReadCount(const std::string& option, absl::string_view text, const std::string& value,
              absl::string_view expected) {
  int count = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &count) || count < 1) throw WrongValue(option, value, expected);
  return count;
}

NodeRange ReadNodes(const std::string& value) {
  constexpr char kExpected[] = "a number of nodes, or MIN-MAX, such as 2-4";
  const std::vector<absl::string_view> parts = absl::StrSplit(value, absl::MaxSplits('-', 1));
  NodeRange nodes;
  nodes.min = ReadCount("nodes", parts[0], value, kExpected);
  nodes.max = parts.size() == 2 ? ReadCount("nodes", parts[1], value, kExpected) : nodes.min;
  if (nodes.max < nodes.min) throw WrongValue("nodes", value, "a maximum that is not below the minimum");
  return nodes;
}

// Checks a value that sbatch reads from a line of the script. sbatch ends a value at a blank and interprets
// quotes, backslashes and '#'.
void CheckPlain(const std::string& option, const std::string& value) {
  const auto plain = [](char c) {
    return absl::ascii_isalnum(c) || absl::string_view("_-./:=,+@%").find(c) != absl::string_view::npos;
  };
  if (value.empty() || !std::all_of(value.begin(), value.end(), plain))
    throw WrongValue(option, value, "letters, digits and the characters _ - . / : = , + @ %, without blanks");
}

// Returns the time limit of a job, or nullopt if it has none: --time=0.
//   value: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or
//          days-hours:minutes:seconds, as sbatch reads it.
std::optional<Duration> ReadTimeLimit(const std::string& value) {
  constexpr char kExpected[] = "minutes, hours:minutes:seconds or days-hours:minutes:seconds";
  const std::vector<absl::string_view> parts = absl::StrSplit(value, absl::MaxSplits('-', 1));
  const bool has_days = parts.size() == 2;
  const std::vector<absl::string_view> fields = absl::StrSplit(parts.back(), ':');
  if (fields.size() > 3) throw WrongValue("time", value, kExpected);
  const auto read = [&](absl::string_view text) {
    int number = 0;
    const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
    if (!digits || !absl::SimpleAtoi(text, &number)) throw WrongValue("time", value, kExpected);
    return number;
  };
  // The unit of the first field, in seconds; each further one is a sixtieth of it.
  int64_t unit = has_days || fields.size() == 3 ? 3600 : 60;
  int64_t total = has_days ? read(parts[0]) * int64_t{86400} : 0;
  for (const absl::string_view field : fields) {
    total += read(field) * unit;
    unit /= 60;
  }
  if (total == 0) return std::nullopt;
  return seconds(total);
}

int64_t ReadNotice(const std::string& value) {
  const Duration notice = ReadTime("notice", value);
  if (notice % seconds(1) != Duration::zero() || notice > kMaxNotice)
    throw WrongValue("notice", value, "whole seconds, at most 65535, which is Slurm's limit");
  return notice / seconds(1);
}

po::options_description ScriptOptions() {
  po::options_description options("Options");
  options.add_options()("help,h", "print this text")(
      "nodes", po::value<std::string>()->value_name("N|MIN-MAX")->default_value("1"),
      "nodes of the job. With MIN-MAX, it starts with the number that Slurm grants, and continues without "
      "nodes "
      "that fail, as long as MIN are left")(
      "time", po::value<std::string>()->value_name("TIME"),
      "time limit, in a format of sbatch: minutes, hours:minutes:seconds or days-hours:minutes:seconds")(
      "notice", po::value<std::string>()->value_name("TIME")->default_value("120s"),
      "time between the notice of pre-emption and the end of the job")(
      "cpus-per-task", po::value<std::string>()->value_name("N"),
      "CPUs on each node, for all its workers together. Without this option, the job has its nodes to itself "
      "(--exclusive)");
  for (const PlainOption& option : kPlainOptions)
    options.add_options()(option.name, po::value<std::string>()->value_name(option.value_name), option.help);
  return options;
}

po::variables_map ParseOptions(const std::vector<std::string>& args, const po::options_description& options) {
  // Abbreviated names are errors.
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  const po::parsed_options parsed = po::command_line_parser(args).options(options).style(style).run();
  for (const po::option& option : parsed.options) {
    if (option.position_key >= 0) {
      throw po::error(absl::StrCat("slurm-script: unexpected \"", option.value[0],
                                   "\": write -- before the options of ddprun and the program"));
    }
  }
  po::variables_map given;
  po::store(parsed, given);
  po::notify(given);
  return given;
}

// Options of the programs that the script configures or starts.
struct Job {
  std::vector<std::string> sbatch;
  std::vector<std::string> srun;
  std::vector<std::string> ddprun;
};

Job MakeJob(const po::variables_map& given) {
  const auto value_of = [&](const char* option) { return given[option].as<std::string>(); };
  const NodeRange nodes = ReadNodes(value_of("nodes"));
  const int64_t notice = ReadNotice(value_of("notice"));
  Job job{.sbatch = {},
          .srun = {"--ntasks-per-node=1"},
          .ddprun = {absl::StrCat("--preempt-signal=SIGUSR1@", notice), "--exit-codes=scheduler"}};
  for (const PlainOption& option : kPlainOptions) {
    if (!given.contains(option.name)) continue;
    CheckPlain(option.name, value_of(option.name));
    job.sbatch.push_back(absl::StrCat("--", option.name, "=", value_of(option.name)));
  }
  job.sbatch.push_back(absl::StrCat("--nodes=", value_of("nodes")));
  // With a range of nodes, sbatch computes the number of tasks from the minimum, and the job gets no more nodes.
  const bool elastic = nodes.min != nodes.max;
  if (!elastic) job.sbatch.push_back("--ntasks-per-node=1");
  if (given.contains("cpus-per-task")) {
    const std::string value = value_of("cpus-per-task");
    const int cpus = ReadCount("cpus-per-task", value, value, "a number of CPUs, at least 1");
    job.sbatch.push_back(absl::StrCat("--cpus-per-task=", cpus));
    job.srun.push_back(job.sbatch.back());  // srun does not take it from the job
  } else {
    job.sbatch.push_back("--exclusive");
  }
  if (given.contains("time")) {
    const std::string value = value_of("time");
    const std::optional<Duration> limit = ReadTimeLimit(value);
    if (limit && *limit <= seconds(notice)) {
      throw WrongValue("time", value,
                       absl::StrCat("more than the ", notice, " s of --notice, which are part of it"));
    }
    job.sbatch.push_back(absl::StrCat("--time=", value));
  }
  job.sbatch.push_back(absl::StrCat("--signal=USR1@", notice));
  job.sbatch.insert(job.sbatch.end(), {"--requeue", "--open-mode=append"});
  if (elastic) {
    job.sbatch.push_back("--no-kill");
    // --kill-on-bad-exit=0: a node that leaves the job exits with 75, and the others continue, whatever slurm.conf
    // says.
    job.srun.insert(job.srun.end(), {"--no-kill", "--kill-on-bad-exit=0"});
    job.ddprun.push_back(absl::StrCat("--nnodes=", nodes.min, ":", nodes.max));
  }
  return job;
}

}  // namespace

std::string SlurmScript(const std::vector<std::string>& args) {
  const auto end = std::find(args.begin(), args.end(), "--");
  const po::options_description options = ScriptOptions();
  const po::variables_map given = ParseOptions({args.begin(), end}, options);
  if (given.contains("help")) {
    std::ostringstream text;
    text << kUsage << options;
    return text.str();
  }
  if (end == args.end() || end + 1 == args.end())
    throw po::error(
        "slurm-script: no program given: write -- and then the options of ddprun and the program");
  const Job job = MakeJob(given);
  std::string script = "#!/bin/bash\n";
  for (const std::string& option : job.sbatch) absl::StrAppend(&script, "#SBATCH ", option, "\n");
  absl::StrAppend(&script,
                  "\n# One agent on each node. It exits with 75 if another start may succeed.\nsrun ",
                  absl::StrJoin(job.srun, " "), " \\\n  ddprun ", absl::StrJoin(job.ddprun, " "), " \\\n ");
  for (auto arg = end + 1; arg != args.end(); ++arg) absl::StrAppend(&script, " ", ShellWord(*arg));
  absl::StrAppend(&script, "\ncode=$?\n[ $code -ne 75 ] || scontrol requeue $SLURM_JOB_ID\nexit $code\n");
  return script;
}

}  // namespace ddprun
