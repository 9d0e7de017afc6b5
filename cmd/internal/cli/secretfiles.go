package cli

import (
	"log/slog"
	"os"
	"runtime"
)

// readableFile is the warning of a file that eachReadable finds.
const readableFile = "every user of this machine can read a file with a secret: take the permission away with chmod o-r"

// eachReadable calls f with each file with a secret, named by its flag, that every user of the machine can
// read. Members of the file's group are meant to: Kubernetes gives a secret to a process by its group.
func eachReadable(files [][2]string, f func(flag, file string, mode os.FileMode)) {
	if runtime.GOOS == "windows" {
		return // its permissions are others
	}
	for _, one := range files {
		if one[1] == "" {
			continue
		}
		info, err := os.Stat(one[1])
		if err == nil && info.Size() > 0 && info.Mode()&0o004 != 0 {
			f(one[0], one[1], info.Mode().Perm())
		}
	}
}

// warnOfOpenFiles logs a warning for each file with a secret that every user of the machine can read.
func (c *serveCommand) warnOfOpenFiles(log *slog.Logger) {
	eachReadable([][2]string{
		{"--http-token-file", c.TokenFile}, {"--http-tls-key", c.Key}, {"--nats-token-file", c.NATSToken},
		{"--nats-password-file", c.NATSLogin.PasswordFile}, {"--nats-nkey-file", c.NATSLogin.NKeyFile}, {"--nats-creds", c.NATSLogin.Creds}, {"--nats-key", c.NATSLogin.Key},
		{"--redis-password-file", c.RedisLogin.PasswordFile}, {"--redis-sentinel-password-file", c.RedisLogin.SentinelFile}, {"--redis-key", c.RedisLogin.Key},
	}, func(flag, file string, mode os.FileMode) {
		log.Warn(readableFile, slog.String("flag", flag), slog.String("file", file), slog.String("mode", mode.String()))
	})
}
