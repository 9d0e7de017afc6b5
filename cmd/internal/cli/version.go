package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// release is the version in SemVer. A build sets it with
// -ldflags "-X github.com/seed18712806/lapse/cmd/internal/cli.release=1.2.3".
var release string

// commit is the commit of a build that has no repository at hand, as in an image. It is set
// like release.
var commit string

type versionCommand struct{}

func (versionCommand) Run(streams output.Streams) error {
	version, revision := version()
	if revision != "" {
		revision = ", " + revision
	}
	_, err := fmt.Fprintf(streams.Out, "lapse %s (%s%s, %s/%s)\n", version, runtime.Version(), revision, runtime.GOOS, runtime.GOARCH)
	return err
}

// version is the version in SemVer, and the commit; the commit is "" if it is not known.
func version() (version, revision string) {
	version = release
	info, ok := debug.ReadBuildInfo()
	if ok && version == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = strings.TrimPrefix(info.Main.Version, "v")
	}
	if version == "" {
		version = "0.0.0-devel"
	}
	revision = commit
	if ok && revision == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return version, revision
}
