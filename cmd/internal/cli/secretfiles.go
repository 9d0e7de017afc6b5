package cli

import (
	"log/slog"
	"os"
	"runtime"
)

// warnOfOpenFiles logs a warning for each file with a secret that every user of the machine can
// read. Members of the file's group are meant to: Kubernetes gives a secret to a process by its group.
func (c *serveCommand) warnOfOpenFiles(log *slog.Logger) {
	if runtime.GOOS == "windows" {
		return // its permissions are others
	}
	for _, f := range [][2]string{
		{"--http-token-file", c.TokenFile}, {"--http-tls-key", c.Key}, {"--nats-token-file", c.NATSToken},
		{"--nats-password-file", c.NATSLogin.PasswordFile}, {"--nats-nkey-file", c.NATSLogin.NKeyFile}, {"--nats-creds", c.NATSLogin.Creds}, {"--nats-key", c.NATSLogin.Key},
		{"--redis-password-file", c.RedisLogin.PasswordFile}, {"--redis-sentinel-password-file", c.RedisLogin.SentinelFile}, {"--redis-key", c.RedisLogin.Key},
	} {
		if f[1] == "" {
			continue
		}
		info, err := os.Stat(f[1])
		if err == nil && info.Size() > 0 && info.Mode()&0o004 != 0 {
			log.Warn("every user of this machine can read a file with a secret: take the permission away with chmod o-r",
				slog.String("flag", f[0]), slog.String("file", f[1]), slog.String("mode", info.Mode().Perm().String()))
		}
	}
}
