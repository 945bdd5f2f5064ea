#include "launcher/stacks/folded.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

using absl::string_view;

constexpr size_t kMaxTemplateArguments = 24;  // bytes
constexpr size_t kMaxFrame = 200;             // bytes

// The complete lines.
std::vector<string_view> Lines(string_view text) {
  std::vector<string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  return lines;
}

// Without control characters, and not too long.
std::string Clean(string_view text) {
  std::string clean(text.substr(0, kMaxFrame));
  if (text.size() > kMaxFrame) {
    while (!clean.empty() && (static_cast<unsigned char>(text[clean.size()]) & 0xc0) == 0x80)
      clean.pop_back();
    clean += "...";
  }
  for (char& c : clean) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return clean;
}

string_view BaseName(string_view path) {
  const size_t slash = path.rfind('/');
  return slash == string_view::npos ? path : path.substr(slash + 1);
}

// "load_batch (torch/data.py:41)" -> "load_batch (data.py:41)"
std::string PythonFrame(string_view line) {
  const size_t open = line.find(" (");
  if (open == string_view::npos) return Clean(line);
  return Clean(absl::StrCat(line.substr(0, open + 2), BaseName(line.substr(open + 2))));
}

// Whether the file of the frame "load_batch (/home/me/data.py:41)" belongs to the program itself.
bool IsOfProgram(string_view line) {
  const size_t open = line.find(" (");
  if (open == string_view::npos) return false;
  const string_view file = line.substr(open + 2);
  return !absl::StartsWith(file, "<") && !absl::StrContains(file, "/site-packages/") &&
         !absl::StrContains(file, "/dist-packages/") && !absl::StrContains(file, "/lib/python");
}

// Thread 4711 (active+gil): "MainThread"
bool ParsePySpyThread(string_view line, ToolThread& thread) {
  if (!absl::ConsumePrefix(&line, "Thread ")) return false;
  const size_t space = line.find(" (");
  if (space == string_view::npos) return false;
  if (!absl::SimpleAtoi(line.substr(0, space), &thread.thread)) thread.thread = 0;  // 0x7f12...: a pthread_t
  const size_t name = line.find(": \"");
  if (name == string_view::npos) return true;
  line.remove_prefix(name + 3);
  absl::ConsumeSuffix(&line, "\"");
  thread.name = Clean(line);
  return true;
}

// Thread 2 (Thread 0x7f9e89e016c0 (LWP 24957) "loader"):
// Thread 2 (LWP 24957 "loader"):
// Thread 1 (process 24957):
bool ParseGdbThread(string_view line, ToolThread& thread) {
  if (!absl::ConsumePrefix(&line, "Thread ")) return false;
  for (const char* const word : {"LWP ", "process "}) {
    const size_t found = line.find(word);
    if (found == string_view::npos) continue;
    string_view digits = line.substr(found + string_view(word).size());
    digits = digits.substr(0, digits.find_first_not_of("0123456789"));
    if (!absl::SimpleAtoi(digits, &thread.thread)) return false;
    const size_t quote = line.find('"', found);
    const size_t end = line.rfind('"');
    if (quote != string_view::npos && end > quote)
      thread.name = Clean(line.substr(quote + 1, end - quote - 1));
    return true;
  }
  return false;
}

// True for functions of the C library that only wait, start threads, or are common to all stacks.
bool IsLibraryFunction(string_view name) {
  while (absl::ConsumePrefix(&name, "_")) {
  }
  absl::ConsumePrefix(&name, "GI_");
  absl::ConsumePrefix(&name, "interceptor_");  // of the sanitizers
  while (absl::ConsumePrefix(&name, "_")) {
  }
  absl::ConsumePrefix(&name, "libc_");
  static const std::set<string_view> kNames = {"accept",
                                               "accept4",
                                               "abort",
                                               "clone",
                                               "clone3",
                                               "clock_nanosleep",
                                               "connect",
                                               "epoll_pwait",
                                               "epoll_wait",
                                               "fsync",
                                               "futex",
                                               "ioctl",
                                               "kill",
                                               "nanosleep",
                                               "open",
                                               "open64",
                                               "openat",
                                               "pause",
                                               "poll",
                                               "ppoll",
                                               "pread64",
                                               "pselect",
                                               "pwrite64",
                                               "raise",
                                               "read",
                                               "readv",
                                               "recv",
                                               "recvfrom",
                                               "recvmsg",
                                               "select",
                                               "send",
                                               "sendmsg",
                                               "sendto",
                                               "sigsuspend",
                                               "sleep",
                                               "start",
                                               "start_main",
                                               "start_thread",
                                               "syscall",
                                               "usleep",
                                               "wait4",
                                               "waitid",
                                               "waitpid",
                                               "write",
                                               "writev",
                                               "sem_wait",
                                               "sem_timedwait",
                                               "start_call_main",
                                               "start_main_impl",
                                               "sigtimedwait",
                                               "sigwait",
                                               "kernel_vsyscall"};
  if (kNames.count(name) > 0) return true;
  for (const char* const prefix : {"futex_", "lll_", "pthread_", "new_sem_", "syscall_cancel"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

bool IsCLibrary(string_view library) {
  for (const char* const name :
       {"libc.so", "libc-2", "libpthread", "ld-linux", "ld-2", "libc.musl", "ld-musl"}) {
    if (absl::StartsWith(library, name)) return true;
  }
  return false;
}

// The sources of glibc, as its packages with debugging information name them.
bool IsCLibrarySource(string_view source) {
  return absl::StartsWith(source, "./") || absl::StartsWith(source, "../sysdeps/") ||
         absl::StartsWith(source, "../csu/") || absl::StartsWith(source, "../nptl/");
}

struct NativeFrame {
  std::string function;
  bool library = false;  // of the C library
};

// #7  0x00007f in c10d::Work::wait (this=..., timeout=...) at work.cpp:12
// #7  _ZN4c10d4Work4waitEv () from /usr/lib/libtorch_cpu.so
bool ParseNativeFrame(string_view line, NativeFrame& frame) {
  if (!absl::ConsumePrefix(&line, "#")) return false;
  const size_t space = line.find(' ');
  if (space == 0 || space == string_view::npos) return false;
  if (line.substr(0, space).find_first_not_of("0123456789") != string_view::npos) return false;
  line = absl::StripLeadingAsciiWhitespace(line.substr(space));
  if (absl::StartsWith(line, "0x")) {
    const size_t in = line.find(" in ");
    if (in != string_view::npos) line.remove_prefix(in + 4);
  }
  string_view library, source;
  if (const size_t from = line.rfind(") from "); from != string_view::npos) {
    library = BaseName(line.substr(from + 7));
    line = line.substr(0, from + 1);
  } else if (const size_t at = line.rfind(") at "); at != string_view::npos) {
    source = line.substr(at + 5);
    line = line.substr(0, at + 1);
  }
  if (absl::EndsWith(line, ")")) line = line.substr(0, line.rfind(" ("));
  if (line.empty()) return false;
  if (line == "??") {
    frame.function = library.empty() ? "??" : Clean(absl::StrCat("?? (", library, ")"));
    frame.library = library.empty() || IsCLibrary(library);
    return true;
  }
  frame.function = ShortFunction(line);
  frame.library = IsCLibrary(library) || IsCLibrarySource(source) || IsLibraryFunction(line);
  return true;
}

// Sets the frames of the thread; false if there are none.
bool Finish(const std::vector<NativeFrame>& frames, ToolThread& thread) {
  const bool only_library =
      std::all_of(frames.begin(), frames.end(), [](const NativeFrame& f) { return f.library; });
  for (const NativeFrame& frame : frames) {
    if (frame.library && !only_library) continue;
    if (absl::StartsWith(frame.function, "??") && !thread.frames.empty() &&
        thread.frames.back() == frame.function) {
      continue;
    }
    thread.frames.push_back(frame.function);
  }
  return !thread.frames.empty();
}

bool IsInterpreter(string_view function) {
  return absl::StartsWith(function, "_PyEval_EvalFrame") || absl::StartsWith(function, "PyEval_EvalFrame") ||
         absl::StartsWith(function, "_PyEval_Vector") || absl::StartsWith(function, "PyEval_EvalCode");
}

bool IsPythonInternal(string_view function) {
  return absl::StartsWith(function, "_Py") || absl::StartsWith(function, "Py") || function == "??" ||
         absl::StartsWith(function, "?? (libpython") || absl::StrContains(function, "vectorcall") ||
         absl::StartsWith(function, "cfunction_");
}

std::string Demangled(string_view name) {
  std::string text(name);
  if (!absl::StartsWith(name, "_Z")) return text;
  // "_ZN1f.isra.0", "_ZN1f@plt"
  const std::string mangled = text.substr(0, text.find_first_of(".@"));
  int status = 0;
  char* const demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (demangled == nullptr) return text;
  text = demangled;
  std::free(demangled);
  return text;
}

// The end of the bracket that opens at `at`; the size of the text if it is not closed. Knows "->" and "operator<".
size_t BracketEnd(string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == 'o' && absl::StartsWith(text.substr(at), "operator")) {
      at += 8;
      while (at < text.size() && (text[at] == '<' || text[at] == '>' || text[at] == '-')) ++at;
      --at;
    } else if (c == '-' && absl::StartsWith(text.substr(at), "->")) {
      ++at;
    } else if (c == '<' || c == '(' || c == '{' || c == '[') {
      ++depth;
    } else if (c == '>' || c == ')' || c == '}' || c == ']') {
      if (--depth == 0) return at + 1;
    }
  }
  return text.size();
}

}  // namespace

std::vector<ToolThread> ParsePySpy(string_view output) {
  std::vector<ToolThread> threads;
  for (string_view line : Lines(output)) {
    absl::ConsumeSuffix(&line, "\r");
    ToolThread thread;
    if (ParsePySpyThread(line, thread)) {
      threads.push_back(std::move(thread));
    } else if (absl::ConsumePrefix(&line, "    ") && !threads.empty() && !line.empty() && line[0] != ' ' &&
               absl::EndsWith(line, ")")) {
      threads.back().frames.push_back(PythonFrame(line));
      if (threads.back().program_frame.empty() && IsOfProgram(line))
        threads.back().program_frame = threads.back().frames.back();
    }
  }
  std::erase_if(threads, [](const ToolThread& t) { return t.frames.empty(); });
  return threads;
}

std::vector<ToolThread> ParseGdb(string_view output) {
  std::vector<ToolThread> threads;
  std::set<pid_t> seen;
  ToolThread thread;
  std::vector<NativeFrame> frames;
  const auto finish = [&] {
    if (thread.thread != 0 && Finish(frames, thread) && seen.insert(thread.thread).second) {
      threads.push_back(std::move(thread));
    }
    thread = {};
    frames.clear();
  };
  for (string_view line : Lines(output)) {
    absl::ConsumeSuffix(&line, "\r");
    ToolThread next;
    NativeFrame frame;
    if (ParseGdbThread(line, next)) {
      finish();
      thread = std::move(next);
    } else if (thread.thread != 0 && ParseNativeFrame(line, frame)) {
      frames.push_back(std::move(frame));
    }
  }
  finish();
  return threads;
}

std::vector<std::string> WithPython(const std::vector<std::string>& native,
                                    const std::vector<std::string>& python) {
  const auto interpreter = std::find_if(native.begin(), native.end(), IsInterpreter);
  if (interpreter == native.end()) return native.empty() ? python : native;
  std::vector<std::string> frames(native.begin(), interpreter);
  while (!frames.empty() && IsPythonInternal(frames.back())) frames.pop_back();
  if (python.empty()) frames.push_back("[Python]");
  frames.insert(frames.end(), python.begin(), python.end());
  return frames;
}

std::string Fold(const std::vector<std::string>& frames, size_t limit) {
  if (frames.empty()) return "";
  std::string folded = frames[0];
  size_t room_for_mark = 0;  // the size of the text to which "\n..." can still be added
  for (size_t i = 1; i < frames.size() && folded.size() <= limit; ++i) {
    if (folded.size() + 4 <= limit) room_for_mark = folded.size();
    absl::StrAppend(&folded, "\n", frames[i]);
  }
  if (folded.size() <= limit) return folded;
  if (room_for_mark == 0) return frames[0].substr(0, std::max<size_t>(limit, 1));
  return absl::StrCat(folded.substr(0, room_for_mark), "\n...");
}

std::string ShortFunction(string_view name) {
  const std::string full = Demangled(name);
  string_view text = full;
  // The C library's name of a function for itself: "__GI___clock_nanosleep".
  if (absl::ConsumePrefix(&text, "__GI_"))
    text.remove_prefix(std::min(text.find_first_not_of('_'), text.size()));
  std::string result;
  size_t start = 0;  // of the qualified name in `result`, after the return type
  bool is_operator = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (!is_operator && c == 'o' && absl::StartsWith(text.substr(i), "operator") &&
        (i == 0 || !(absl::ascii_isalnum(text[i - 1]) || text[i - 1] == '_')) &&
        (i + 8 == text.size() || !(absl::ascii_isalnum(text[i + 8]) || text[i + 8] == '_'))) {
      is_operator = true;
      size_t end = i + 8;
      if (absl::StartsWith(text.substr(end), "()")) {
        end += 2;
      } else {
        while (end < text.size() && string_view("<>-=!+*/%^&|~,[]").find(text[end]) != string_view::npos)
          ++end;
      }
      absl::StrAppend(&result, text.substr(i, end - i));
      i = end;
    } else if (absl::StartsWith(text.substr(i), "(anonymous namespace)")) {
      absl::StrAppend(&result, "(anonymous namespace)");
      i += 21;
    } else if (c == '<' || c == '(' || c == '[' || c == '{') {
      const size_t end = BracketEnd(text, i);
      const string_view inside = text.substr(i, end - i);
      if (c == '<') {
        absl::StrAppend(&result, inside.size() <= kMaxTemplateArguments ? inside : "<...>");
      } else if (c == '[') {
        if (absl::StartsWith(inside, "[abi:")) absl::StrAppend(&result, inside);
      } else if (c == '{') {  // {lambda(int)#1} -> {lambda#1}
        const size_t number = inside.rfind('#');
        absl::StrAppend(&result, absl::StartsWith(inside, "{lambda") && number != string_view::npos
                                     ? absl::StrCat("{lambda", inside.substr(number))
                                     : std::string(inside));
      }
      i = end;
    } else if (c == ' ') {
      // What stands before a space is the return type; what stands after the arguments is "const".
      const string_view rest = text.substr(i + 1);
      if (absl::StartsWith(rest, "[clone")) break;
      if (i > 0 && text[i - 1] == ')' && (absl::StartsWith(rest, "const") || absl::StartsWith(rest, "&"))) {
        const size_t next = rest.find("::");
        if (next == string_view::npos) break;
        i += 1 + next;
        continue;
      }
      if (!is_operator) {
        start = result.size();
      } else {
        result += c;
      }
      ++i;
    } else {
      result += c;
      ++i;
    }
  }
  result =
      std::string(absl::StripAsciiWhitespace(string_view(result).substr(std::min(start, result.size()))));
  return Clean(result.empty() ? text : string_view(result));
}

}  // namespace ddprun
