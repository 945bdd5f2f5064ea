"""clang-tidy as an aspect. A source is checked again only if the source, an included header or .clang-tidy has changed."""

_COPTS = ("-D", "-m")  # prefixes of the options in a rule's copts that change the meaning of its sources

def _arguments(context, rule):
    arguments = ["-std=c++20", "-xc++", "-Wno-everything"]
    arguments += ["-D" + name for name in context.defines.to_list() + context.local_defines.to_list()]
    arguments += ["-iquote" + folder for folder in context.quote_includes.to_list()]
    arguments += ["-I" + folder for folder in context.includes.to_list()]
    arguments += ["-isystem" + folder for folder in context.system_includes.to_list()]
    return arguments + [copt for copt in getattr(rule.attr, "copts", []) if copt.startswith(_COPTS)]

def _clang_tidy_impl(target, ctx):
    if CcInfo not in target or getattr(ctx.rule.attr, "testonly", False) or target.label.workspace_root:
        return []
    context = target[CcInfo].compilation_context
    reports = []
    for source in getattr(ctx.rule.files, "srcs", []):
        if source.extension != "cc" or not source.is_source:
            continue
        report = ctx.actions.declare_file("%s.%s.clang_tidy" % (target.label.name, source.basename))
        ctx.actions.run_shell(
            outputs = [report],
            inputs = depset([source, ctx.file._config], transitive = [context.headers]),
            arguments = [report.path, "--quiet", "--config-file=" + ctx.file._config.path, source.path, "--"] +
                        _arguments(context, ctx.rule),
            # Standard error is shown only on failure: clang-tidy writes the number of warnings in other headers to it.
            command = 'report=$1; shift; clang-tidy-14 "$@" > "$report" 2> "$report.err" || { cat "$report" "$report.err"; exit 1; } >&2',
            mnemonic = "ClangTidy",
            progress_message = "clang-tidy " + source.short_path,
            use_default_shell_env = True,
        )
        reports.append(report)
    return [OutputGroupInfo(clang_tidy = depset(reports))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = {"_config": attr.label(default = Label("//:.clang-tidy"), allow_single_file = True)},
)
