const here = import.meta.url;

/** Where the server's pages, sockets and API begin: `/`, or a path of the settings such as `/calls/`. Scripts lie in a folder there. */
export const BASE = new URL("../", here).pathname;
