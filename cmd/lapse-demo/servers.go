package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"lapse/internal/kafkaserver"
	"lapse/internal/pgserver"
	"lapse/schemas"
)

// database is the demonstration's own.
const database = "shop"

// servers are the throw-away servers and the configuration that names them.
type servers struct {
	postgres *pgserver.Server
	kafka    *kafkaserver.Server // nil: a folder keeps the topics
	config   string
}

// startServers starts the newest PostgreSQL that is installed and, where that is too, a Kafka, and writes lapse.yaml.
func startServers(ctx context.Context, config string) (*servers, error) {
	installed, err := pgserver.Installed()
	if err != nil {
		return nil, err
	}
	if len(installed) == 0 {
		return nil, errors.New("no PostgreSQL is installed: `make servers` fetches some, apt-get install -y postgresql installs one, or LAPSE_PG_BIN names " +
			"the folder with its programs")
	}
	p := &servers{config: config}
	if p.postgres, err = pgserver.Start(ctx, pgserver.Options{Install: installed[len(installed)-1]}); err != nil {
		return nil, err
	}
	if _, missing := kafkaserver.Find(); missing == nil {
		if p.kafka, err = kafkaserver.Start(ctx, kafkaserver.Options{}); err != nil {
			return nil, errors.Join(err, p.postgres.Close())
		}
	}
	if err := p.configure(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *servers) configure(ctx context.Context) error {
	admin, err := session(ctx, p.postgres.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	_, err = admin.Exec(ctx, "create database "+database)
	if err = errors.Join(err, admin.Close(ctx)); err != nil {
		return err
	}
	topics := "sink: dir:sink\n"
	if p.kafka != nil {
		topics = fmt.Sprintf("kafka:\n  brokers: [%s]\ntopics: { partitions: 6, replication: 1 }\n", p.kafka.Addr())
	}
	return os.WriteFile(p.config, []byte(fmt.Sprintf("database: %s\n%s", p.url(login), topics)), 0o600)
}

// sink says where the topics are.
func (p *servers) sink() string {
	if p.kafka == nil {
		return filepath.Join(filepath.Dir(p.config), "sink")
	}
	return p.kafka.Addr()
}

// login is the one that init makes, for all commands that need no superuser.
const login = "lapse"

func (p *servers) url(user string) string { return p.postgres.URL(user, database) }

func (p *servers) connect(ctx context.Context) (*pgx.Conn, error) {
	return session(ctx, p.url("postgres"))
}

// session connects with the settings that Lapse's own sessions have.
func session(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	return pgx.ConnectConfig(ctx, config)
}

// environment is what the lapse commands are started with: nothing of the caller's settings.
func (p *servers) environment(home string) []string {
	return []string{"LAPSE_CONFIG=" + p.config, "HOME=" + home, "PATH=" + os.Getenv("PATH")}
}

func (p *servers) close() (err error) {
	if p.kafka != nil {
		err = p.kafka.Close()
	}
	return errors.Join(err, p.postgres.Close())
}
