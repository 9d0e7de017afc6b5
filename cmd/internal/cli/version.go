package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// release is the version, in SemVer, of a build that is told one:
// -ldflags "-X github.com/seed18712806/lapse/cmd/internal/cli.release=1.2.3".
var release string

type versionCommand struct{}

func (versionCommand) Run(streams Streams) error {
	version, revision := version()
	if revision != "" {
		revision = ", " + revision
	}
	_, err := fmt.Fprintf(streams.Out, "lapse %s (%s%s, %s/%s)\n", version, runtime.Version(), revision, runtime.GOOS, runtime.GOARCH)
	return err
}

// version is the version in SemVer, and the commit if it is known.
func version() (version, revision string) {
	version = release
	info, ok := debug.ReadBuildInfo()
	if ok && version == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = strings.TrimPrefix(info.Main.Version, "v")
	}
	if version == "" {
		version = "0.0.0-devel"
	}
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return version, revision
}
