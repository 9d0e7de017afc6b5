package credentials

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Redis is how a process connects to Redis. The zero value is for a server that asks for
// nothing. Its errors name the flags of the command line.
type Redis struct {
	User         string // the default user if empty
	PasswordFile string // its first line is the password
	CA           string // certificates to trust; those of the system if empty
	Cert, Key    string // the client certificate and its private key

	SentinelUser         string // of the Sentinels; the default user if empty
	SentinelPasswordFile string // its first line is the password for the Sentinels
}

const (
	redisUser     = "--redis-user"
	redisPassword = "--redis-password-file"
	redisCA       = "--redis-ca"
	redisCert     = "--redis-cert"
	redisKey      = "--redis-key"

	redisSentinelUser     = "--redis-sentinel-user"
	redisSentinelPassword = "--redis-sentinel-password-file"
)

// Check checks the files, and whether they fit the URLs.
func (r Redis) Check(urls string, withTLS bool) error {
	if r.User != "" && r.PasswordFile == "" {
		return fmt.Errorf("%s needs %s: give both", redisUser, redisPassword)
	}
	if err := together(redisCert, r.Cert, redisKey, r.Key); err != nil {
		return err
	}
	if r.PasswordFile != "" {
		if anyUser(urls) {
			return fmt.Errorf("%s: %w", redisPassword, errUserTwice)
		}
		if _, err := password(redisPassword, r.PasswordFile); err != nil {
			return err
		}
	}
	for _, one := range [][2]string{{redisCA, r.CA}, {redisCert, r.Cert}} {
		if one[1] != "" && !withTLS {
			return fmt.Errorf("%s needs a rediss:// URL: redis:// is without TLS", one[0])
		}
	}
	_, err := r.tls(&tls.Config{})
	return err
}

// Login returns the user and the password for a new connection.
func (r Redis) Login(context.Context) (user, secret string, err error) {
	secret, err = password(redisPassword, r.PasswordFile)
	return r.User, secret, err
}

// Sentinel returns the password for the Sentinels, "" if there is none. has reports whether the
// URL names Sentinels.
func (r Redis) Sentinel(has bool) (secret string, err error) {
	switch {
	case r.SentinelUser == "" && r.SentinelPasswordFile == "":
		return "", nil
	case r.SentinelPasswordFile == "":
		return "", fmt.Errorf("%s needs %s: give both", redisSentinelUser, redisSentinelPassword)
	case !has:
		return "", fmt.Errorf("%s needs a redis+sentinel:// URL", redisSentinelPassword)
	}
	return password(redisSentinelPassword, r.SentinelPasswordFile)
}

// Dialer returns a function that connects by TLS. The configuration is that of the URL.
func (r Redis) Dialer(
	config *tls.Config, timeout time.Duration,
) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		fresh, err := r.tls(config)
		if err != nil {
			return nil, err
		}
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout, KeepAlive: 5 * time.Minute}, Config: fresh}
		return dialer.DialContext(ctx, network, address)
	}
}

// tls adds what the files have to a configuration.
func (r Redis) tls(config *tls.Config) (fresh *tls.Config, err error) {
	fresh = config.Clone()
	if r.CA != "" {
		if fresh.RootCAs, err = authorities(redisCA, r.CA); err != nil {
			return nil, err
		}
	}
	if r.Cert != "" {
		cert, err := certificate(redisCert, r.Cert, redisKey, r.Key)
		if err != nil {
			return nil, err
		}
		fresh.Certificates = []tls.Certificate{cert}
	}
	return fresh, nil
}
