package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// release is the version in SemVer. A build sets it with
// -ldflags "-X github.com/seed18712806/lapse/cmd/internal/cli.release=1.2.3".
var release string

// commit and date are the commit of a build that has no repository at hand, as in an image, and the
// commit's time. They are set like release.
var commit, date string

type versionCommand struct{}

func (versionCommand) Run(streams output.Streams) error {
	version, revision, date := version()
	parts := []string{runtime.Version(), revision, date, runtime.GOOS + "/" + runtime.GOARCH}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	_, err := fmt.Fprintf(streams.Out, "lapse %s (%s)\n", version, strings.Join(parts, ", "))
	return err
}

// version is the version in SemVer, the commit, and when that was made. What is not known is "".
func version() (version, revision, made string) {
	version, revision, made = release, commit, date
	info, ok := debug.ReadBuildInfo()
	if ok && version == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = strings.TrimPrefix(info.Main.Version, "v")
	}
	if version == "" {
		version = "0.0.0-devel"
	}
	if !ok || revision != "" {
		return version, revision, made
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.time":
			made = s.Value
		}
	}
	return version, revision, made
}
