package schemas

// ReadMigrations is for tests of folders that are not ours.
var ReadMigrations = readMigrations

// Unreleased are the versions that no release may have.
var Unreleased = unreleased
