#include "launcher/agent/failure_display.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launcher/report/failure_page.h"
#include "launcher/report/failure_report.h"

namespace ddprun {
namespace {

constexpr size_t kStderrLines = 20;

}  // namespace

void FailureDisplay::BeginRound(Round round, bool has_other_nodes, std::string directory) {
  start_ = {.round = round, .has_other_nodes = has_other_nodes, .directory = std::move(directory)};
}

void FailureDisplay::KeepNode(std::vector<FailureRecord> failures) {
  kept_.push_back(Node{start_.round, std::move(failures)});
}

void FailureDisplay::KeepJob(JobReport report) { kept_.push_back(Job{start_, std::move(report)}); }

void FailureDisplay::Show(const std::string& full_host) {
  for (auto& item : std::exchange(kept_, {})) {
    if (auto* node = std::get_if<Node>(&item)) {
      Show(*node, full_host);
    } else {
      Show(std::get<Job>(item));
    }
  }
}

void FailureDisplay::ShowAll(const std::string& full_host) {
  Show(full_host);
  if (!stderr_.empty()) log_->Write(std::exchange(stderr_, {}));
}

void FailureDisplay::Show(Node& node, const std::string& full_host) {
  for (FailureRecord& record : node.failures) record.failure.host = full_host;
  shown_round_ = node.round;
  shown_ = FormatFailureReport(program_, node.failures, absl::LocalTimeZone());
  stderr_ = FormatStderrTail(node.failures, kStderrLines);
  log_->Write(shown_);
}

void FailureDisplay::Show(const Job& job) {
  const JobReport& report = job.report;
  const bool nothing_else = !job.start.has_other_nodes && report.round == shown_round_ &&
                            report.groups.size() == 1 && report.more_failures == 0 &&
                            report.lost_nodes.empty();
  const std::string whole = FormatFailurePage(report);
  stderr_.clear();
  log_->Write(nothing_else ? FormatWhatIsNew(report, shown_) : whole);
  if (report.round == job.start.round) Leave(whole, job.start.directory);
}

void FailureDisplay::Leave(const std::string& page, const std::string& directory) const {
  if (directory.empty()) return;
  const std::string path = absl::StrCat(directory, "/failure_report.txt");
  write_file_(path, page, [log = log_, path](const absl::Status& written) {
    log->Say(written.ok()
                 ? absl::StrCat("the failure report is also in ", path)
                 : absl::StrCat("the failure report cannot be written: ", std::string(written.message())));
  });
}

}  // namespace ddprun
