package cli

import "github.com/seed18712806/lapse/sink/credentials"

// NATSLogin are the flags that tell a NATS server who connects.
type NATSLogin struct {
	User         string `name:"nats-user" env:"LAPSE_NATS_USER" placeholder:"NAME"`
	PasswordFile string `name:"nats-password-file" env:"LAPSE_NATS_PASSWORD_FILE" type:"existingfile" placeholder:"FILE"`
	NKeyFile     string `name:"nats-nkey-file" env:"LAPSE_NATS_NKEY_FILE" type:"existingfile" placeholder:"FILE"`
	Creds        string `name:"nats-creds" aliases:"creds" env:"LAPSE_NATS_CREDS" type:"existingfile" placeholder:"FILE"`
	CA           string `name:"nats-ca" aliases:"ca" env:"LAPSE_NATS_CA" type:"existingfile" placeholder:"FILE"`
	Cert         string `name:"nats-cert" env:"LAPSE_NATS_CERT" type:"existingfile" placeholder:"FILE"`
	Key          string `name:"nats-key" env:"LAPSE_NATS_KEY" type:"existingfile" placeholder:"FILE"`
	InboxPrefix  string `name:"nats-inbox-prefix" env:"LAPSE_NATS_INBOX_PREFIX" placeholder:"SUBJECT"`
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
	User         string `name:"redis-user" env:"LAPSE_REDIS_USER" placeholder:"NAME"`
	PasswordFile string `name:"redis-password-file" env:"LAPSE_REDIS_PASSWORD_FILE" type:"existingfile" placeholder:"FILE"`
	CA           string `name:"redis-ca" env:"LAPSE_REDIS_CA" type:"existingfile" placeholder:"FILE"`
	Cert         string `name:"redis-cert" env:"LAPSE_REDIS_CERT" type:"existingfile" placeholder:"FILE"`
	SentinelUser string `name:"redis-sentinel-user" env:"LAPSE_REDIS_SENTINEL_USER" placeholder:"NAME"`
	SentinelFile string `name:"redis-sentinel-password-file" env:"LAPSE_REDIS_SENTINEL_PASSWORD_FILE" type:"existingfile" placeholder:"FILE"`
	Key          string `name:"redis-key" env:"LAPSE_REDIS_KEY" type:"existingfile" placeholder:"FILE"`
}

// Credentials are what the flags give.
func (l RedisLogin) Credentials() credentials.Redis {
	return credentials.Redis{
		User: l.User, PasswordFile: l.PasswordFile, CA: l.CA, Cert: l.Cert, Key: l.Key,
		SentinelUser: l.SentinelUser, SentinelPasswordFile: l.SentinelFile,
	}
}
