package cli

import "github.com/seed18712806/lapse/sink/credentials"

// NATSLogin are the flags that tell a NATS server who connects.
type NATSLogin struct {
	User         string `name:"nats-user" env:"LAPSE_NATS_USER" placeholder:"NAME" help:"User for NATS."`
	PasswordFile string `name:"nats-password-file" env:"LAPSE_NATS_PASSWORD_FILE" type:"existingfile" placeholder:"FILE" help:"File whose first line is the password of that user."`
	NKeyFile     string `name:"nats-nkey-file" env:"LAPSE_NATS_NKEY_FILE" type:"existingfile" placeholder:"FILE" help:"File with the seed of an nkey, instead of a user and a password."`
	Creds        string `name:"nats-creds" aliases:"creds" env:"LAPSE_NATS_CREDS" type:"existingfile" placeholder:"FILE" help:"File with NATS credentials, instead of a user and a password."`
	CA           string `name:"nats-ca" aliases:"ca" env:"LAPSE_NATS_CA" type:"existingfile" placeholder:"FILE" help:"File with the certificates to trust for a tls:// URL, in place of the system's."`
	Cert         string `name:"nats-cert" env:"LAPSE_NATS_CERT" type:"existingfile" placeholder:"FILE" help:"File with the client certificate for NATS."`
	Key          string `name:"nats-key" env:"LAPSE_NATS_KEY" type:"existingfile" placeholder:"FILE" help:"File with the private key of that certificate."`
	InboxPrefix  string `name:"nats-inbox-prefix" env:"LAPSE_NATS_INBOX_PREFIX" placeholder:"SUBJECT" help:"Prefix of the subjects for replies, such as _INBOX.orders, if the user may not subscribe to others (_INBOX)."`
}

// Credentials are what the flags give.
func (l NATSLogin) Credentials() credentials.NATS {
	return credentials.NATS{
		User: l.User, PasswordFile: l.PasswordFile, NKeyFile: l.NKeyFile, Creds: l.Creds,
		CA: l.CA, Cert: l.Cert, Key: l.Key, InboxPrefix: l.InboxPrefix,
	}
}

// RedisLogin are the flags that tell Redis who connects.
type RedisLogin struct {
	User         string `name:"redis-user" env:"LAPSE_REDIS_USER" placeholder:"NAME" help:"User for Redis."`
	PasswordFile string `name:"redis-password-file" env:"LAPSE_REDIS_PASSWORD_FILE" type:"existingfile" placeholder:"FILE" help:"File whose first line is the password of that user, or of the default user."`
	CA           string `name:"redis-ca" env:"LAPSE_REDIS_CA" type:"existingfile" placeholder:"FILE" help:"File with the certificates to trust for a rediss:// URL, in place of the system's."`
	Cert         string `name:"redis-cert" env:"LAPSE_REDIS_CERT" type:"existingfile" placeholder:"FILE" help:"File with the client certificate for Redis."`
	SentinelUser string `name:"redis-sentinel-user" env:"LAPSE_REDIS_SENTINEL_USER" placeholder:"NAME" help:"User for the Sentinels."`
	SentinelFile string `name:"redis-sentinel-password-file" env:"LAPSE_REDIS_SENTINEL_PASSWORD_FILE" type:"existingfile" placeholder:"FILE" help:"File whose first line is the password for the Sentinels."`
	Key          string `name:"redis-key" env:"LAPSE_REDIS_KEY" type:"existingfile" placeholder:"FILE" help:"File with the private key of that certificate."`
}

// Credentials are what the flags give.
func (l RedisLogin) Credentials() credentials.Redis {
	return credentials.Redis{
		User: l.User, PasswordFile: l.PasswordFile, CA: l.CA, Cert: l.Cert, Key: l.Key,
		SentinelUser: l.SentinelUser, SentinelPasswordFile: l.SentinelFile,
	}
}
